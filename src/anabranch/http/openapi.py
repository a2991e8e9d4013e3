"""The OpenAPI document, made from the operations themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from anabranch.http.operation import Operation
from anabranch.http.problems import MEDIA_TYPE

PREFIX = "/api/v1"
ALWAYS = (400, 401, 403, 408, 421, 429, 500, 503)
"""Any request may be refused so."""

TEXT = {"type": "string"}
IN_PATH = {"number": {"type": "integer", "minimum": 1}}
"""What stands in paths, if it is no text."""

PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
}


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """For programs."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = paths.setdefault(PREFIX + operation.path, {})
        path[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Anabranch",
            "version": version("anabranch"),
            "description": "See a running state service, and tell it what to do.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Problem": PROBLEM},
        },
        "security": [{"token": []}],
    }


def _operation(operation: Operation) -> dict[str, Any]:
    in_path = re.findall(r"{(\w+)}", operation.path)
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": IN_PATH.get(name, TEXT)}
        for name in in_path
    ]
    parameters += [
        {"name": name, "in": "query", "required": name in operation.required, "schema": schema}
        for name, schema in operation.query.items()
    ]
    if operation.method == "POST":
        key = {"type": "string", "maxLength": 200}
        parameters.append({"name": "Idempotency-Key", "in": "header", "schema": key})
    answers: dict[str, Any] = {
        str(status): {
            "description": HTTPStatus(status).phrase,
            "content": {"application/json": {"schema": schema}},
        }
        for status, schema in operation.answers.items()
    }
    problem = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    also = [404] if in_path else []
    also += [413, 415] if operation.body is not None else []
    for status in sorted({*ALWAYS, *also, *operation.errors}):
        answers[str(status)] = {"description": HTTPStatus(status).phrase, "content": problem}
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": answers,
    }
    if operation.body is not None:
        content = {"application/json": {"schema": operation.body}}
        found["requestBody"] = {"required": True, "content": content}
    return found
