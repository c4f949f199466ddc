"""Client cost: `geval` beside a bare aiohttp loop, against the same server in another process.

    python tests/benchmarks/client.py [--rows 1000] [--latency 0.05] [--in-flight 64]

Prints rows per second, CPU milliseconds per row (this process alone) and peak memory for each,
and the ratios. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import resource
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

TEMPLATE = """---
name: bench
locale: en
inputs:
  question: {type: text}
  answer: {type: text}
scale:
  levels: {1: wrong, 2: mostly wrong, 3: half right, 4: mostly right, 5: right}
criteria:
  accuracy: Is the answer right?
output: {order: score_only, reason: false}
---
{% extends "_geval.jinja" %}
{% block sample %}
Question: {{ question }}
Answer: {{ answer }}
{% endblock %}
"""


def reply() -> bytes:
    """A chat completion of one token with 20 alternatives."""
    listed = {"4": 0.6, "5": 0.3, **{f"w{i}": 0.1 / 18 for i in range(18)}}
    top = [
        {"token": t, "logprob": math.log(p), "bytes": list(t.encode())} for t, p in listed.items()
    ]
    body = {
        "id": "x",
        "object": "chat.completion",
        "model": "bench-1",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "4"},
                "logprobs": {"content": [{**top[0], "top_logprobs": top}]},
            }
        ],
        "usage": {"prompt_tokens": 120, "completion_tokens": 1, "total_tokens": 121},
    }
    return json.dumps(body).encode()


def serve(pipe: Connection, latency: float) -> None:
    """Answer every chat completion alike, after `latency` seconds."""
    from aiohttp import web

    body = reply()

    async def chat(request: web.Request) -> web.Response:
        await request.read()
        if latency:
            await asyncio.sleep(latency)
        return web.Response(body=body, content_type="application/json")

    async def missing(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "no such route"}}, status=404)

    async def main() -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/chat/completions", chat)
        app.router.add_route("*", "/{rest:.*}", missing)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=512)
        await site.start()
        pipe.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(main())


async def bare(url: str, rows: list[dict[str, str]], in_flight: int) -> None:
    """The least a client can do: post the prompt, parse the JSON, take the mean."""
    import aiohttp

    places = asyncio.Semaphore(in_flight)
    connector = aiohttp.TCPConnector(limit=in_flight)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def one(row: dict[str, str]) -> float:
            body = {
                "model": "bench-1",
                "messages": [{"role": "user", "content": row["question"] + row["answer"]}],
                "max_tokens": 8,
                "logprobs": True,
                "top_logprobs": 20,
                "temperature": 0,
            }
            async with places, session.post(f"{url}/chat/completions", json=body) as response:
                answer = json.loads(await response.read())
            top = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            mass = {t["token"]: math.exp(t["logprob"]) for t in top if t["token"].isdigit()}
            return sum(int(k) * p for k, p in mass.items()) / sum(mass.values())

        await asyncio.gather(*(one(row) for row in rows))


async def ours(url: str, rows: list[dict[str, str]], in_flight: int, folder: Path) -> None:
    """`geval.ascore` with run folder, without the reply cache (a cold cache only adds writes)."""
    import geval
    from geval.traffic.limits import Limits

    run = await geval.ascore(
        rows,
        template=folder / "bench.en.jinja",
        judge="openai:bench-1",
        base_url=url,
        limits=Limits(concurrency=in_flight),
        cache=False,
        out=folder / "run",
        force_new=True,
    )
    assert run.manifest["summary"]["overall"]["scored"] == len(rows)


def measured(work: asyncio.Future[None] | object) -> tuple[float, float]:
    """Wall and CPU seconds of a coroutine."""
    wall, cpu = time.perf_counter(), time.process_time()
    asyncio.run(work)  # type: ignore[arg-type]
    return time.perf_counter() - wall, time.process_time() - cpu


def child(kind: str, url: str, n: int, in_flight: int, pipe: Connection) -> None:
    """Measure one client in a process of its own, so that memory is its own."""
    rows = [{"id": str(i), "question": f"Q{i}?", "answer": f"Answer {i}. " * 10} for i in range(n)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bench.en.jinja").write_text(TEMPLATE, encoding="utf-8")
        if kind == "geval":
            asyncio.run(ours(url, rows[:5], in_flight, folder))  # imports and probe
            result = measured(ours(url, rows, in_flight, folder))
        else:
            asyncio.run(bare(url, rows[:5], in_flight))
            result = measured(bare(url, rows, in_flight))
    pipe.send((*result, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def main() -> None:
    """Run both clients and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--in-flight", type=int, default=64)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=serve, args=(there, options.latency), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{here.recv()}/v1"
    found = {}
    for kind in ("bare aiohttp", "geval"):
        mine, its = context.Pipe()
        process = context.Process(
            target=child, args=(kind, url, options.rows, options.in_flight, its)
        )
        process.start()
        found[kind] = mine.recv()
        process.join()
    server.terminate()
    print(f"{options.rows} rows, {options.latency * 1000:.0f} ms, {options.in_flight} in flight")
    for kind, (wall, cpu, memory) in found.items():
        rate, each = options.rows / wall, 1000 * cpu / options.rows
        print(f"{kind:14} {rate:8.0f} rows/s  {each:6.2f} ms CPU/row  {memory:6.0f} MB")
    (w0, c0, _), (w1, c1, _) = found["bare aiohttp"], found["geval"]
    print(f"geval / bare: {w0 / w1:.2f} of the rows/s, {c1 / c0:.2f} times the CPU")


if __name__ == "__main__":
    sys.exit(main())
