"""A reverse proxy as servers have in front of them: ``python -m tests.e2e.forwarding PORT=URL ...``."""

from __future__ import annotations

import asyncio
import sys

from aiohttp import ClientSession, web


async def forward(ports: dict[int, str]) -> None:
    """Pass what comes to each port on to a URL, and say where it came from."""
    async with ClientSession() as http:
        for port, url in ports.items():
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", _to(url, http))
            runner = web.AppRunner(app)
            await runner.setup()
            await web.TCPSite(runner, None, port).start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def _to(url: str, http: ClientSession) -> web.RequestHandler:
    async def handle(request: web.Request) -> web.Response:
        headers = {k: v for k, v in request.headers.items() if k not in ("Host", "Accept-Encoding")}
        headers["X-Forwarded-For"] = request.remote or ""
        async with http.request(
            request.method, url + request.path_qs, headers=headers, data=await request.read()
        ) as answer:
            kept = {k: v for k, v in answer.headers.items() if k in ("Content-Type", "Location")}
            return web.Response(status=answer.status, headers=kept, body=await answer.read())

    return handle


if __name__ == "__main__":
    pairs = (argument.split("=", 1) for argument in sys.argv[1:])
    asyncio.run(forward({int(port): url for port, url in pairs}))
