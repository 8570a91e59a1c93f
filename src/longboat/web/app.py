"""The ASGI application: routes to what answers them. Every request has passed `access` before."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from longboat import __version__
from longboat.core.errors import LongboatError
from longboat.core.runs import RunStatus
from longboat.engines.shared.home import current_user
from longboat.sdk.places import currency
from longboat.web.access import FORWARDED, USER_KEY, AccessLayer, AccessRules, App, WebUser
from longboat.web.answers import (
    ALL_PLACES,
    HERE,
    READERS,
    SIMULATIONS,
    Handler,
    Rejected,
    Threads,
    body_of,
    on_error,
    on_fault,
    on_missing,
    params_of,
)
from longboat.web.events import now_text
from longboat.web.places import ShownPlace, find_place
from longboat.web.static_files import INDEX, StaticFiles
from longboat.web.users import PlaceUsers
from longboat.web.views.curves import run_curves
from longboat.web.views.fleet import Queue, nodes, services
from longboat.web.views.logs import LogStreams, log_window, stream_query
from longboat.web.views.one_run import ACTIONS, SUBMITTING, act, checkpoints, run_page
from longboat.web.views.scaling import ScalingHistory, WhatIf, autoscalers, retry_pools
from longboat.web.views.set_up import clusters
from longboat.web.views.studies import compare, end_sweep, one_sweep, sweeps
from longboat.web.watching import Watchers

PLACES_KEY = "longboat.places"
STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}


class Dashboard:
    """What all requests share."""

    def __init__(self, watchers: Watchers, rules: AccessRules, *, readonly: bool = False) -> None:
        self.watchers = watchers
        self.rules = rules
        self.readonly = readonly
        for place in watchers.places if readonly else ():
            place.engine.takes_over = False
        self.currency = currency()
        self.files = StaticFiles()
        self.log_streams = LogStreams()
        self.threads = Threads()
        self.history = ScalingHistory()
        self.what_if = WhatIf()
        self.queued = Queue()
        self.users = PlaceUsers(watchers.places)

    def places(self, request: Request) -> list[ShownPlace]:
        """As the one who asks has them: `reading` has asked the clusters."""
        places: list[ShownPlace] = request.scope[PLACES_KEY]
        return places

    def listed(self, request: Request) -> list[tuple[ShownPlace, list[RunStatus]]]:
        runs = {place.name: runs for place, runs in self.watchers.listed()}
        return [(place, runs[place.name]) for place in self.places(request)]

    def reading(self, handler: Handler) -> Handler:
        """For those alone who may list runs."""

        async def checked(request: Request) -> Response:
            user = request.scope.get(USER_KEY)
            places = self.watchers.places
            if user is not None:
                places = await self.threads.run(READERS, lambda: self.users.places(user))
            request.scope[PLACES_KEY] = places
            return await handler(request)

        return checked

    async def while_reading(self, request: Request, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """A stream that ends for whoever loses the right; heartbeats make it look again and again."""
        user = request.scope.get(USER_KEY)
        async for data in stream:
            try:
                if user is not None:
                    await self.threads.run(READERS, lambda: self.users.places(user))
            except LongboatError:
                return
            yield data

    # what is known without asking anybody

    async def state(self, request: Request) -> Response:
        return await self.threads.answer(request, HERE, self._state, request.scope.get(USER_KEY))

    def _state(self, user: WebUser | None) -> dict[str, Any]:
        return {
            "version": __version__,
            "user": user.name if user else current_user(),
            "readonly": self.readonly,
            "currency": self.currency,
            "csrf": self.rules.csrf(user.name if user else ""),
            "time": now_text(time.time()),
            "clusters": self.watchers.clusters(),
        }

    async def runs(self, request: Request) -> Response:
        return await self.threads.answer(request, HERE, self._runs)

    def _runs(self) -> dict[str, Any]:
        cursor, rows = self.watchers.rows()
        return {"cursor": cursor, "runs": rows, "clusters": self.watchers.clusters()}

    async def events(self, request: Request) -> Response:
        watchers = self.watchers
        cursor = request.headers.get("last-event-id") or request.query_params.get("since") or watchers.events.cursor
        stream = watchers.events.follow(cursor, watchers.heartbeat)
        return StreamingResponse(self.while_reading(request, stream), headers=STREAM_HEADERS)

    # one run

    def _run(self, request: Request) -> tuple[ShownPlace, str]:
        return find_place(self.places(request), request.path_params["cluster"]), request.path_params["id"]

    async def run(self, request: Request) -> Response:
        place, run = self._run(request)
        return await self.threads.answer(
            request, place.name, lambda: run_page(place, run, allowed=self._allowed(request))
        )

    def _allowed(self, request: Request) -> tuple[str, ...]:
        if self.readonly:
            return ()
        return tuple(name for name in ACTIONS if not (request.scope.get(USER_KEY) and name in SUBMITTING))

    async def act(self, request: Request) -> Response:
        place, run = self._run(request)
        action = request.path_params["action"]
        if request.scope.get(USER_KEY) and action in SUBMITTING:
            hint = "copy the command and run it where the job's files and secrets are"
            raise Rejected(403, f"{action}: this dashboard submits nothing in the name of others", hint=hint)
        self._check_changes()
        if action not in ACTIONS:
            raise Rejected(404, f"{action!r} is nothing that can be done to a run", hint=f"one of {', '.join(ACTIONS)}")
        options = await body_of(request)
        answer = await self.threads.answer(request, place.name, lambda: act(place, run, action, options))
        self.watchers.nudge(place.name)
        return answer

    def _check_changes(self) -> None:
        if self.readonly:
            raise Rejected(403, "this dashboard is read-only", hint="longboat ui without --read-only")

    async def logs(self, request: Request) -> Response:
        place, run = self._run(request)
        return await self.threads.answer(request, place.name, log_window, place, run, params_of(request))

    async def log_stream(self, request: Request) -> Response:
        place, run = self._run(request)
        params = params_of(request)
        self.log_streams.check_room()
        stream_query(params)
        # A run that is not there is a 404, not a stream.
        await self.threads.run(place.name, lambda: place.engine.status(run))
        cursor = request.headers.get("last-event-id")
        stream = self.log_streams.follow(place, run, params, cursor)
        return StreamingResponse(self.while_reading(request, stream), headers=STREAM_HEADERS)

    async def metrics(self, request: Request) -> Response:
        place, run = self._run(request)
        return await self.threads.answer(request, place.name, run_curves, place, run)

    async def checkpoints(self, request: Request) -> Response:
        place, run = self._run(request)
        return await self.threads.answer(request, place.name, checkpoints, place, run)

    # several runs, and what they run on

    async def sweeps(self, request: Request) -> Response:
        return await self.threads.answer(
            request, ALL_PLACES, lambda: sweeps(self.places(request), readonly=self.readonly)
        )

    async def sweep(self, request: Request) -> Response:
        cluster, name = request.path_params["cluster"], request.path_params["name"]
        place = find_place(self.places(request), cluster)
        look = partial(one_sweep, [place], cluster, name, readonly=self.readonly)
        return await self.threads.answer(request, place.name, look)

    async def stop_sweep(self, request: Request) -> Response:
        place = find_place(self.places(request), request.path_params["cluster"])
        self._check_changes()
        return await self.threads.answer(request, place.name, end_sweep, place, request.path_params["name"])

    async def compare(self, request: Request) -> Response:
        return await self.threads.answer(
            request, ALL_PLACES, compare, self.places(request), request.query_params.getlist("run")
        )

    async def nodes(self, request: Request) -> Response:
        return await self.threads.answer(request, ALL_PLACES, nodes, self.places(request))

    async def queue(self, request: Request) -> Response:
        return await self.threads.answer(request, ALL_PLACES, lambda: self.queued.answer(self.listed(request)))

    async def services(self, request: Request) -> Response:
        return await self.threads.answer(
            request, ALL_PLACES, lambda: services(self.listed(request), may_open=self._may_open(request))
        )

    def _may_open(self, request: Request) -> bool:
        """A notebook's token is its owner's: it is shown to who acts as that on this machine, and in no other place."""
        is_own = request.scope.get(USER_KEY) is None and not self.readonly
        return is_own and all(FORWARDED.fullmatch(host) for host in self.rules.hosts)

    async def autoscaler(self, request: Request) -> Response:
        return await self.threads.answer(request, ALL_PLACES, lambda: autoscalers(self.listed(request), self.history))

    async def retry_pools(self, request: Request) -> Response:
        place = find_place(self.places(request), request.path_params["cluster"])
        self._check_changes()
        return await self.threads.answer(request, place.name, retry_pools, place)

    async def simulate(self, request: Request) -> Response:
        asked = await body_of(request)
        return await self.threads.answer(request, SIMULATIONS, lambda: self.what_if.answer(self.listed(request), asked))

    async def clusters(self, request: Request) -> Response:
        return await self.threads.answer(request, HERE, clusters)

    # files

    async def page(self, request: Request) -> Response:
        return self.files.answer(request, INDEX)

    async def file(self, request: Request) -> Response:
        return self.files.answer(request, request.path_params["name"])

    async def nothing(self, request: Request) -> Response:
        return await on_missing(request, LookupError())

    def routes(self) -> list[Route]:
        read = self.reading
        return [
            Route("/api/state", read(self.state)),
            Route("/api/runs", read(self.runs)),
            Route("/api/events", read(self.events)),
            Route("/api/runs/{cluster}/{id}", read(self.run)),
            Route("/api/runs/{cluster}/{id}/logs", read(self.logs)),
            Route("/api/runs/{cluster}/{id}/logs/stream", read(self.log_stream)),
            Route("/api/runs/{cluster}/{id}/metrics", read(self.metrics)),
            Route("/api/runs/{cluster}/{id}/checkpoints", read(self.checkpoints)),
            Route("/api/runs/{cluster}/{id}/{action}", read(self.act), methods=["POST"]),
            Route("/api/sweeps", read(self.sweeps)),
            Route("/api/sweeps/{cluster}/{name}", read(self.sweep)),
            Route("/api/sweeps/{cluster}/{name}/stop", read(self.stop_sweep), methods=["POST"]),
            Route("/api/compare", read(self.compare)),
            Route("/api/nodes", read(self.nodes)),
            Route("/api/queue", read(self.queue)),
            Route("/api/services", read(self.services)),
            Route("/api/autoscaler", read(self.autoscaler)),
            Route("/api/autoscaler/{cluster}/retry", read(self.retry_pools), methods=["POST"]),
            Route("/api/simulate", read(self.simulate), methods=["POST"]),
            Route("/api/clusters", read(self.clusters)),
            Route("/api/{rest:path}", self.nothing, methods=["GET", "POST"]),
            Route("/static/{name:path}", self.file),
            Route("/{rest:path}", self.page),
        ]


def make_app(dashboard: Dashboard) -> App:
    """The whole application. Its watchers run from its start-up to its shut-down."""

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        dashboard.watchers.start()
        try:
            yield
        finally:
            dashboard.watchers.close()

    handlers: dict[Any, Any] = {LongboatError: on_error, 404: on_missing, 500: on_fault}
    app = Starlette(routes=dashboard.routes(), lifespan=lifespan, exception_handlers=handlers)
    return AccessLayer(app, dashboard.rules)
