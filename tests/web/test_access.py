"""Who may ask the dashboard for what: names, origins, tokens, changes; and the headers of every answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra ui is not installed")

from longboat.web.access import AccessLayer, AccessRules, check_address, check_user, user_of, without_token
from longboat.web.server import allowed_hosts
from tests.web.asgi import HOST, Answer, ask

RULES = AccessRules(token="secret-token", hosts=allowed_hosts("127.0.0.1", 8080), cookie="longboat-8080")
COOKIE = {"cookie": f"longboat-8080={RULES.session}"}


async def inner(scope: Any, receive: Any, send: Any) -> None:
    size = 0
    while (message := await receive())["type"] == "http.request":
        size += len(message["body"])
        if not message["more_body"]:
            break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


def get(target: str, headers: dict[str, str] | None = None, method: str = "GET", body: bytes = b"") -> Answer:
    return asyncio.run(ask(AccessLayer(inner, RULES), method, target, headers, body))


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "LOCALHOST:8080", "[::1]:8080", "localhost:9000"])
def test_names_of_this_machine_are_answered(host: str) -> None:
    assert check_address(RULES, {"host": host}).status == 200


@pytest.mark.parametrize("host", ["", "evil.example:8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1.evil.example:8080"])
def test_other_names_that_lead_here_are_refused(host: str) -> None:
    assert check_address(RULES, {"host": host}).status == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1:8080"},
        {"origin": "http://127.0.0.1:9090"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    ],
)
def test_pages_of_other_origins_are_refused(headers: dict[str, str]) -> None:
    assert check_address(RULES, {"host": HOST, **headers}).status == 403
    assert get("/api/state", {**COOKIE, **headers}).status == 403


def test_a_link_from_elsewhere_and_own_requests_pass() -> None:
    clicked = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    for headers in ({"origin": f"http://{HOST}"}, {"sec-fetch-site": "same-origin"}, clicked, {}):
        assert check_address(RULES, {"host": HOST, **headers}).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"cookie": f"longboat-8080={RULES.token}"},
        {"cookie": f"longboat-8081={RULES.session}"},
        {"cookie": "longboat-8080=" + "0" * 64},
        {"cookie": '\x7f=;;;="; longboat-8080'},
        {"authorization": f"Bearer {RULES.session}"},
        {"authorization": RULES.token},
        {"authorization": "Bearer \xff"},
    ],
)
def test_without_the_right_secret_nothing_is_told(headers: dict[str, str]) -> None:
    assert check_user(RULES, "GET", "/api/runs", headers).status == 401
    assert check_user(RULES, "POST", "/api/runs", {**headers, "x-longboat-csrf": RULES.csrf()}).status == 401


@pytest.mark.parametrize(
    "text",
    ['prefs={"a":1}; {own}', "{own}; a b=c", "x@y=1;{own}", 'a="b; {own}; c', "longboat-80801=0; {own}", "=; ; {own}"],
)
def test_cookies_of_other_servers_on_this_host_do_not_hide_ours(text: str) -> None:
    headers = {"cookie": text.replace("{own}", COOKIE["cookie"])}
    assert check_user(RULES, "GET", "/api/runs", headers).status == 200


def test_changes_need_the_second_secret() -> None:
    assert check_user(RULES, "POST", "/api/x", COOKIE).status == 403
    assert check_user(RULES, "POST", "/api/x", {**COOKIE, "x-longboat-csrf": RULES.session}).status == 403
    assert check_user(RULES, "POST", "/api/x", {**COOKIE, "x-longboat-csrf": RULES.csrf()}).status == 200
    assert check_user(RULES, "POST", "/static/x", {}).status == 401
    assert check_user(RULES, "DELETE", "/api/x", COOKIE).status == 405


def test_the_token_becomes_a_strict_cookie_and_leaves_the_address() -> None:
    answer = get(f"/runs/local/a?token={RULES.token}&rank=3")
    assert (answer.status, answer.headers["location"]) == (303, "/runs/local/a?rank=3")
    assert answer.headers["set-cookie"] == f"longboat-8080={RULES.session}; Path=/; HttpOnly; SameSite=Strict"
    assert RULES.token not in str(answer.headers)


def test_after_a_link_from_elsewhere_a_page_of_ours_goes_on() -> None:
    clicked = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    answer = get(f"/%22%3E%3Cscript%3E?token={RULES.token}", clicked)
    assert answer.status == 200 and "SameSite=Strict" in answer.headers["set-cookie"]
    assert b"<script" not in answer.body and b'url=/%22%3E%3Cscript%3E"' in answer.body


def test_a_good_token_leads_nowhere_else() -> None:
    for path in ("//evil.example", "/\\evil.example", "///evil.example/a"):
        location = get(f"{path}?token={RULES.token}").headers["location"]
        assert location.startswith("/") and location[1:2] not in ("/", "\\")


def test_a_wrong_token_is_refused_with_a_page_that_says_what_to_do() -> None:
    answer = get("/?token=wrong")
    assert answer.status == 401 and b"longboat ui" in answer.body and "set-cookie" not in answer.headers
    assert get("/api/state?token=secret-token").status == 401  # the interface takes no token in an address


def test_every_answer_has_the_headers_of_safety() -> None:
    for answer in (get("/"), get("/api/state", COOKIE), get("/", {"host": "evil"}), get(f"/?token={RULES.token}")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_large_and_endless_bodies_are_cut() -> None:
    headers = {**COOKIE, "x-longboat-csrf": RULES.csrf()}
    assert get("/api/x", {**headers, "content-length": str(9 << 20)}, "POST").status == 413
    assert get("/api/x", {**headers, "content-length": "many"}, "POST").status == 413
    assert int(get("/api/x", {**headers, "content-length": "1"}, "POST", b"x" * (9 << 20)).body) <= 8 << 20


def test_the_token_of_a_query() -> None:
    assert without_token("a=1&token=x&b=") == ("x", "a=1&b=")
    assert without_token("") == (None, "")


def test_health_is_told_to_everybody_and_says_nothing() -> None:
    answer = get("/healthz", {"host": "10.1.2.3:8080"})
    assert answer.status == 200 and answer.data == {"ok": True}


USERS = RULES._replace(has_users=True, groups=frozenset({"ml", "ops"}))
PROXY = {"x-longboat-proxy": USERS.token, "x-forwarded-user": "alice"}


def test_a_proxys_word_lets_people_in_and_nothing_else_does() -> None:
    assert check_user(USERS, "GET", "/api/runs", PROXY).status == 200
    for headers in (COOKIE, {"authorization": f"Bearer {USERS.token}"}, {"x-forwarded-user": "alice"}):
        assert check_user(USERS, "GET", "/api/runs", headers).status == 401
    assert check_user(USERS, "GET", "/api/runs", {**PROXY, "x-forwarded-user": ""}).status == 401
    changing = {**PROXY, "x-longboat-csrf": USERS.csrf("bob")}
    assert check_user(USERS, "POST", "/api/x", changing).status == 403
    assert check_user(USERS, "POST", "/api/x", {**changing, "x-longboat-csrf": USERS.csrf()}).status == 403
    assert check_user(USERS, "POST", "/api/x", {**changing, "x-longboat-csrf": USERS.csrf("alice")}).status == 200


def test_users_and_groups_of_a_proxy() -> None:
    told = {**PROXY, "x-forwarded-groups": "ops, admins,ml,system:masters,,ml"}
    user = user_of(USERS._replace(groups=USERS.groups | {"system:masters"}), told)
    assert user is not None and (user.name, user.groups) == ("alice", ("ml", "ops"))
    for name in ("", " alice", "alice ", "a\tb", "system:admin", "system:node:x", "\xe4", "a" * 255):
        assert user_of(USERS, {"x-forwarded-user": name}) is None


@pytest.mark.parametrize("name", ["x-forwarded-user", "x-longboat-proxy", "x-forwarded-groups"])
def test_who_asks_is_said_once(name: str) -> None:
    """A proxy that adds its header to that of the client has replaced nothing."""
    sent: list[Any] = []
    headers = [(b"host", HOST.encode()), *((key.encode(), value.encode()) for key, value in PROXY.items())]
    headers += [(name.encode(), b"mallory")] * (1 if name in PROXY else 2)
    scope = {"type": "http", "method": "GET", "path": "/api/runs", "query_string": b"", "headers": headers}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(AccessLayer(inner, USERS)(scope, None, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 400
