"""Errors over HTTP, in the shape of OpenAI's API: ``{"error": {"message", "type", "code", "param"}}``."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from aiohttp import web
from aiohttp.typedefs import Handler

from units.realtime.errors import ProtocolError

logger = logging.getLogger(__name__)

API = "/v1/"

CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "Location",
}

_REFUSALS = {
    404: ("not_found", "There is nothing at {path}."),
    405: ("method_not_allowed", "{path} does not take {method}."),
    413: ("request_too_large", "The request is too large."),
    415: ("unsupported_media_type", "The content type is not one that {path} takes."),
}


def error_response(
    status: int,
    code: str | None,
    message: str,
    *,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """An error body; its type says whose fault it is: the client's below 500, else the server's."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": kind, "code": code, "param": param}
    return web.json_response({"error": error}, status=status, headers=headers)


def readable(response: web.StreamResponse) -> web.StreamResponse:
    """``response`` with the headers that let a page on another origin read it."""
    if not response.prepared:
        for name, value in CORS.items():
            response.headers.setdefault(name, value)
    return response


@web.middleware
async def api_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Under ``/v1/`` every refusal is an error body, whoever made it."""
    if not request.path.startswith(API):
        return await handler(request)
    try:
        return await handler(request)
    except web.HTTPException as refusal:
        if refusal.status < 400 or refusal.content_type == "application/json":
            raise
        return _refused(request, refusal)
    except ProtocolError as error:
        return readable(web.json_response({"error": error.body()}, status=400))
    except web.RequestPayloadError:
        message = "The body is not what its headers say."
        return readable(error_response(400, "invalid_body", message))
    except Exception:
        logger.exception("%s %s failed", request.method, request.path)
        message = "Something went wrong in the server; its log says what."
        return readable(error_response(500, "internal_error", message))


def _refused(request: web.Request, refusal: web.HTTPException) -> web.StreamResponse:
    code, sentence = _REFUSALS.get(refusal.status, (None, refusal.reason))
    message = sentence.format(path=request.path, method=request.method)
    kept = {name: refusal.headers[name] for name in ("Allow", "Retry-After") if name in refusal.headers}
    return readable(error_response(refusal.status, code, message, headers=kept))
