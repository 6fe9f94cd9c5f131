"""Op sets that say why they cannot run here."""

from octavo.hookspecs import OctavoSpecs
from octavo.plugin.component import Component


class Plugin(OctavoSpecs):
    def octavo_ops(self):
        return [
            Component(
                name="quantum", target="octavo_picky:Never", rank=20, requires=("qubits>=2",)
            ),
            Component(
                name="gpu", target="octavo_picky:Never", rank=10, why_not="octavo_picky:no_gpu"
            ),
            Component(
                name="odd", target="octavo_picky:Never", rank=5, why_not="octavo_picky:fails"
            ),
        ]


plugin = Plugin()


def no_gpu(context):
    return ["no GPU is here", f"threads is {context.engine.threads}"]


def fails(context):
    message = "cannot tell"
    raise ValueError(message)
