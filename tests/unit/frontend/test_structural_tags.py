"""Structural tags: two ways to write them, and what is made of both."""

from __future__ import annotations

import json

import pytest

from octavo.errors import RequestError
from octavo.structural_tags import plain_tags

SCHEMA = {"type": "integer"}
TAG = {"begin": "<f=a>", "schema": SCHEMA, "end": "</f>"}
CONTENT = {"type": "json_schema", "json_schema": SCHEMA}
NEW_TAG = {"type": "tag", "begin": "<f=a>", "content": CONTENT, "end": "</f>"}
OLD = {"type": "structural_tag", "structures": [TAG], "triggers": ["<f="]}
NEW = {
    "type": "structural_tag",
    "format": {"type": "triggered_tags", "triggers": ["<f="], "tags": [NEW_TAG]},
}
PLAIN = {
    "at_least_one": False, "stop_after_first": False, "triggers": ["<f="], "tags": [TAG],
}  # fmt: skip


@pytest.mark.parametrize("given", [OLD, NEW, json.dumps(OLD), json.dumps(NEW)])
def test_both_ways_of_writing_are_one(given):
    assert json.loads(plain_tags(given)) == PLAIN


def test_a_tag_alone_and_the_switches():
    only = json.loads(plain_tags({"format": NEW_TAG}))
    many = {**NEW["format"], "at_least_one": True, "stop_after_first": True}

    assert only == {**PLAIN, "at_least_one": True, "stop_after_first": True, "triggers": ["<f=a>"]}
    assert json.loads(plain_tags({"format": many}))["at_least_one"]


def test_of_triggers_that_begin_alike_the_shortest_is_kept():
    given = {**OLD, "triggers": ["<f=", "<f=a", "<f="]}

    assert json.loads(plain_tags(given))["triggers"] == ["<f="]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("{", "not valid JSON"),
        ([1], "must be an object"),
        ({}, "structures must be a list"),
        ({**OLD, "type": "tags"}, "its type must be structural_tag"),
        ({**OLD, "more": 1}, "unknown field 'more'"),
        ({**OLD, "structures": []}, "structures must be a list, and not empty"),
        ({**OLD, "structures": ["a"]}, "with begin, schema and end"),
        ({**OLD, "structures": [{**TAG, "schema": None}]}, "must be an object"),
        ({**OLD, "structures": [{**TAG, "begin": 3}]}, "must be texts"),
        ({**OLD, "structures": [{"begin": "<f=", "schema": {}}]}, "must be texts"),
        ({**OLD, "structures": [{**TAG, "begin": "g"}]}, "begins with none of the triggers"),
        ({**OLD, "triggers": ["<f=", "["]}, "no tag begins with the trigger '['"),
        ({**OLD, "triggers": []}, "triggers must be a list of texts"),
        ({**OLD, "triggers": [""]}, "triggers must be a list of texts"),
        ({**OLD, "structures": [{**TAG, "schema": {"const": float("nan")}}]}, "not valid JSON"),
        ({"format": {"type": "sequence"}}, "a format of type 'sequence' is not supported"),
        ({"format": {**NEW["format"], "at_least_one": 1}}, "must be true or false"),
        ({"format": {**NEW["format"], "excludes": ["a"]}}, "unknown field 'excludes'"),
        ({"format": {**NEW_TAG, "content": {"type": "any_text"}}}, "of type json_schema"),
    ],
)
def test_what_can_be_no_structural_tag_is_refused(given, reason):
    with pytest.raises(RequestError) as caught:
        plain_tags(given)

    assert reason in str(caught.value)
    assert caught.value.param == "structured_outputs"
