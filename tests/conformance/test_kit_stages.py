"""The stock sampler stages and proposers keep their promises."""

from octavo.testing import ProposerSuite, StageSuite
from octavo_plugins.samplers import plugin

for _component in plugin.octavo_sampler_stages():
    _name = "Test" + "".join(word.title() for word in _component.name.split("-"))
    globals()[_name] = type(_name, (StageSuite,), {"component": _component.name})


class TestNone(ProposerSuite):
    component = "none"


class TestNgram(ProposerSuite):
    component = "ngram"


class TestShortNgram(ProposerSuite):
    component = "ngram"
    options = {"min-ngram": 1, "num-drafts": 3}


class TestDraftModel(ProposerSuite):
    component = "draft-model"
    options = {"model": "same"}
