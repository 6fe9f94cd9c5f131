"""The server's own OpenAPI document names every route, and the shape of what each reads."""

import pytest

from server_process import scripted_server_process


@pytest.fixture(scope="module")
def document():
    with scripted_server_process() as server:
        yield server.http.get("/openapi.json").json()


def test_it_is_a_document_of_openapi(document):
    assert document["openapi"].startswith("3.1")
    assert document["info"]["title"] == "Octavo"


@pytest.mark.parametrize(
    ("path", "method", "body"),
    [
        ("/v1/chat/completions", "post", "ChatBody"),
        ("/v1/completions", "post", "CompletionBody"),
        ("/v1/messages", "post", "MessagesBody"),
        ("/v1/embeddings", "post", "InputBody"),
        ("/v1/responses", "post", "ResponsesBody"),
        ("/tokenize", "post", "TokenizeBody"),
    ],
)
def test_a_route_says_what_it_reads(document, path, method, body):
    operation = document["paths"][path][method]
    (content,) = operation["requestBody"]["content"].values()
    assert content["schema"] == {"$ref": f"#/components/schemas/{body}"}
    assert document["components"]["schemas"][body]["properties"]


def test_parameters_of_paths_are_told(document):
    operation = document["paths"]["/v1/models/{name}"]["get"]
    assert [one["name"] for one in operation["parameters"]] == ["name"]


def test_references_lead_somewhere(document):
    def references(node):
        if isinstance(node, dict):
            yield from ([node["$ref"]] if isinstance(node.get("$ref"), str) else [])
            for value in node.values():
                yield from references(value)
        elif isinstance(node, list):
            for value in node:
                yield from references(value)

    names = document["components"]["schemas"]
    assert {one.rpartition("/")[2] for one in references(document)} <= set(names)


def test_each_operation_has_an_id_of_its_own(document):
    ids = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(ids) == len(set(ids)) > 20


def test_routes_that_only_refuse_are_left_out(document):
    assert not any("audio" in path for path in document["paths"])
