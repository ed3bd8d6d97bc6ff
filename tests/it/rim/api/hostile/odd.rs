//! Odd requests, each with the status and the problem of its answer.

use counterfoil::api::Role::{self, Admin, Call, Decide, Operate, Read};

use super::answer::Shot;
use super::attack::Kind;
use super::body::LIMIT;
use super::scene::Scene;

/// The caller of an odd request.
#[derive(Clone, Copy)]
enum By {
    /// Of the tenant `acme`.
    Own(Role),
    /// Of all tenants.
    All(Role),
    Nobody,
}

use By::{All, Nobody, Own};

/// Paths that are read: the path, the status, and the name of the problem.
const READS: &[(By, &str, u16, &str)] = &[
    (Nobody, "/runs", 401, "unauthenticated"),
    (Nobody, "/nowhere", 404, "not_found"),
    (Own(Call), "/runs", 403, "forbidden"),
    (Own(Admin), "/tokens", 403, "forbidden"),
    (Own(Admin), "/tenants/other/runs", 403, "forbidden"),
    (Own(Admin), "/tenants/ACME/runs", 403, "forbidden"),
    (All(Read), "/runs", 400, "malformed"),
    (All(Read), "/tokens", 403, "forbidden"),
    (All(Read), "/tenants/%00/runs", 422, "name"),
    (All(Read), "/tenants/acme%0d%0a/runs", 422, "name"),
    (Own(Read), "/runs?limit=-1", 400, "malformed"),
    (Own(Read), "/runs?limit=4294967296", 400, "malformed"),
    (Own(Read), "/runs?limit=1&limit=2", 400, "malformed"),
    (Own(Read), "/runs?limit=0", 200, ""),
    (Own(Read), "/runs?limit=4294967295", 200, ""),
    (Own(Read), "/runs?workflow=%00&key=%00", 200, ""),
    (Own(Read), "/runs?workflow=%27%20OR%201%3D1%20--", 200, ""),
    (Own(Read), "/runs?after=run-1", 400, "malformed"),
    (Own(Read), "/runs?after=run-1~-9223372036854775809", 400, "malformed"),
    (Own(Read), "/runs?since=2026-11-31T25", 400, "malformed"),
    (Own(Read), "/runs/run--8000000000000001", 422, "name"),
    (Own(Read), "/runs/run--8000000000000000", 404, "not_found"),
    (Own(Read), "/runs/%FF", 400, "malformed"),
    (Own(Read), "/runs/run-7ffffffffffffffe/events", 404, "not_found"),
    (Own(Read), "/questions/question-7ffffffffffffffe", 404, "not_found"),
    (Own(Read), "/questions?after=question-7fffffffffffffff", 200, ""),
    (Own(Read), "/approvals/refund%2F1%00", 422, "name"),
    (Own(Read), "/records/post:~key:none", 404, "not_found"),
    (Own(Read), "/records?label=customer", 400, "malformed"),
    (Own(Read), "/artifacts/report/case%2F17?version=0", 404, "not_found"),
    (Own(Read), "/artifacts/report/case%2F17?version=4294967295", 404, "not_found"),
    (Own(Read), "/artifacts/report/case%2F17?version=4294967296", 400, "malformed"),
    (Own(Read), "/memories?subject=ann", 400, "malformed"),
    (Own(Read), "/memories?subject=ann&kind=fact&after=-9223372036854775808", 200, ""),
    (Own(Read), "/memories?subject=%1b&kind=fact", 422, "name"),
];

/// Bodies that are sent under a good key: the path, the body, the status, and the name of the problem.
const WRITES: &[(By, &str, &str, u16, &str)] = &[
    (Own(Operate), "/runs", r#"{"reason": "r", "workflow": "none"}"#, 422, "unregistered"),
    (Own(Operate), "/runs", r#"{"reason": "r", "workflow": "wait", "labels": {"": "x"}}"#, 422, "name"),
    (Own(Operate), "/runs", r#"{"reason": "r", "workflow": "wait", "labels": {"a": "\u0000"}}"#, 422, "name"),
    (Own(Operate), "/runs", r#"{"reason": "r", "workflow": "wait", "labels": ["a"]}"#, 400, "malformed"),
    (
        Own(Operate),
        "/runs",
        r#"{"reason": "r", "workflow": "wait", "input": 9007199254740993}"#,
        422,
        "payload",
    ),
    (Own(Operate), "/runs", r#"{"reason": "r", "workflow": "wait", "input": 1e999}"#, 400, "malformed"),
    (Own(Operate), "/runs", r#"{"reason": "r", "workflow": "wait", "by": "bob"}"#, 400, "malformed"),
    (Own(Operate), "/runs", r#"{"reason": "r", "workflow": "wait", "workflow": "wait"}"#, 400, "malformed"),
    (Own(Operate), "/runs", r#"{"reason": "r", "workflow": 1}"#, 400, "malformed"),
    (Own(Operate), "/runs", r#"{"reason": "a\nb", "workflow": "wait"}"#, 422, "name"),
    (Own(Operate), "/runs", r#"{"reason": null, "workflow": "wait"}"#, 400, "malformed"),
    (Own(Operate), "/runs", r#"{"workflow": "wait"}"#, 400, "malformed"),
    (Own(Operate), "/runs", "\u{feff}{}", 400, "malformed"),
    (Own(Operate), "/runs", "", 400, "malformed"),
    (Own(Decide), "/runs", r#"{"reason": "r", "workflow": "wait"}"#, 403, "forbidden"),
    (Own(Operate), "/tenants/other/runs", r#"{"reason": "r", "workflow": "wait"}"#, 403, "forbidden"),
    (Own(Operate), "/runs/nonsense/pause", r#"{"reason": "r"}"#, 422, "name"),
    (Own(Operate), "/runs/run-7fffffffffffffff/pause", r#"{"reason": "r"}"#, 404, "not_found"),
    (Own(Operate), "/runs/run-7fffffffffffffff/cancel", r#"{"reason": "r"}"#, 404, "not_found"),
    (Own(Operate), "/runs/run-7fffffffffffffff/fork", r#"{"reason": "r"}"#, 404, "not_found"),
    (Own(Operate), "/runs/run-1/signals", r#"{"reason": "r", "name": "~cancel"}"#, 422, "name"),
    (Own(Operate), "/runs/run-1/signals", r#"{"reason": "r", "name": ""}"#, 422, "name"),
    (Own(Admin), "/erase", r#"{"reason": "r", "name": "", "value": "x"}"#, 422, "name"),
    (Own(Operate), "/erase", r#"{"reason": "r", "name": "customer", "value": "c-7"}"#, 403, "forbidden"),
    (
        Own(Decide),
        "/questions/question-7ffffffffffffffe/answer",
        r#"{"reason": "r", "answer": "keep"}"#,
        404,
        "not_found",
    ),
    (
        Own(Decide),
        "/questions/question-7ffffffffffffffe/answer",
        r#"{"reason": "r", "answer": "perhaps"}"#,
        400,
        "malformed",
    ),
    (
        Own(Decide),
        "/questions/question-7ffffffffffffffe/answer",
        r#"{"reason": "r", "answer": {"happened": 1, "undone": 1}}"#,
        400,
        "malformed",
    ),
    (
        Own(Read),
        "/questions/question-7ffffffffffffffe/answer",
        r#"{"reason": "r", "answer": "keep"}"#,
        403,
        "forbidden",
    ),
    (
        Own(Decide),
        "/approvals/none/decision",
        r#"{"reason": "r", "version": 1, "approve": true}"#,
        404,
        "not_found",
    ),
    (
        Own(Decide),
        "/approvals/none/decision",
        r#"{"reason": "r", "version": -1, "approve": true}"#,
        400,
        "malformed",
    ),
    (
        Own(Decide),
        "/approvals/none/decision",
        r#"{"reason": "r", "version": 1, "approve": "yes"}"#,
        400,
        "malformed",
    ),
    (Own(Decide), "/outbox/question-7ffffffffffffffe/skip", r#"{"reason": "r"}"#, 404, "not_found"),
    (Own(Admin), "/tokens/0123456789abcdef/revoke", r#"{"reason": "r"}"#, 403, "forbidden"),
    (All(Admin), "/tokens/0123456789abcdef/revoke", r#"{"reason": "r"}"#, 404, "not_found"),
    (All(Admin), "/tokens/%2e%2e/revoke", r#"{"reason": "r"}"#, 404, "not_found"),
    (
        Own(Call),
        "/guard/begin",
        r#"{"tool": "mail", "key": "k", "effect": "notification", "lookup": true}"#,
        409,
        "approval",
    ),
    (Own(Call), "/guard/begin", r#"{"tool": "mail", "key": "k", "effect": "notification"}"#, 422, "contract"),
    (Own(Call), "/guard/begin", r#"{"tool": "wipe", "key": "k", "effect": "deletion"}"#, 409, "approval"),
    (Own(Call), "/guard/begin", r#"{"tool": "post", "key": "k"}"#, 422, "declaration"),
    (
        Own(Call),
        "/guard/begin",
        r#"{"tool": "refund", "key": "k", "contract": "transactional"}"#,
        422,
        "contract",
    ),
    (Own(Call), "/guard/begin", r#"{"tool": "refund", "key": "a\u0000b"}"#, 422, "key"),
    (Own(Call), "/guard/begin", r#"{"tool": "", "key": "k"}"#, 422, "key"),
    (Own(Call), "/guard/begin", r#"{"tool": "refund", "key": "k", "labels": {"a": ""}}"#, 422, "name"),
    (Own(Call), "/guard/begin", r#"{"tool": "refund", "key": "k", "effect": "war"}"#, 400, "malformed"),
    (Own(Call), "/guard/begin", r#"{"tool": "refund", "key": "k", "attempt_ms": -1}"#, 400, "malformed"),
    (Own(Call), "/guard/begin", r#"{"tool": "refund", "key": "k", "attempt_ms": 1.5}"#, 400, "malformed"),
    (Own(Operate), "/guard/begin", r#"{"tool": "refund", "key": "k"}"#, 403, "forbidden"),
    (Own(Call), "/guard/seal", r#"{"permit": "", "outcome": {"done": {"output": 1}}}"#, 404, "not_found"),
    (
        Own(Call),
        "/guard/seal",
        r#"{"permit": "x.y", "outcome": {"done": {"output": 9007199254740993}}}"#,
        422,
        "payload",
    ),
    (Own(Call), "/guard/seal", r#"{"permit": "x.y", "outcome": "done"}"#, 400, "malformed"),
    (Own(Call), "/guard/reconcile", r#"{"permit": "x.y", "finding": "not_found"}"#, 404, "not_found"),
    (Own(Call), "/guard/poll", r#"{"tool": "\u0000", "wait_ms": 0}"#, 200, ""),
];

/// Keys of a write: the key, the status, and the name of the problem.
const KEYS: &[(&[u8], u16, &str)] = &[
    (b"", 422, "key"),
    (b"  ", 422, "key"),
    (b"\"\"", 422, "key"),
    (b"\"open", 422, "key"),
    (b"\"a\" b", 422, "key"),
    (b"a\tb", 422, "key"),
    (b"\xc3\xa4", 422, "key"),
    (b"~child", 422, "name"),
];

impl Shot {
    /// A request by this caller.
    fn by(by: By, scene: &Scene, method: &str, path: &str) -> Self {
        let shot = Self::new(Kind::Valid, method, path.to_owned());
        let (known, needed, sees_all) = match by {
            Own(role) => (&scene.tokens.own, role, false),
            All(role) => (&scene.tokens.all, role, true),
            Nobody => return shot,
        };
        let (_, token) = known.iter().find(|(role, _)| *role == needed).unwrap();
        Self { sees_all, ..shot.bearer(token) }
    }
}

/// Fires a request, and returns what was wrong with the answer.
async fn fired(scene: &Scene, shot: Shot, expected: (u16, &str)) -> Option<String> {
    let answer = scene.fire(&shot).await;
    answer.judge(&shot, &scene.secrets);
    let code = if answer.is_refused() { answer.code() } else { String::new() };
    let is_so = (answer.status, code.as_str()) == expected;
    (!is_so).then(|| format!("{shot}\n    {expected:?} was expected: {} {}", answer.status, answer.text))
}

#[tokio::test]
async fn each_odd_request_is_answered_with_its_problem() {
    let scene = Box::pin(Scene::new()).await;
    let mut wrong = Vec::new();
    for (by, path, status, code) in READS {
        let shot = Shot::by(*by, &scene, "GET", path);
        wrong.extend(fired(&scene, shot, (*status, *code)).await);
    }
    for (place, (by, path, body, status, code)) in WRITES.iter().enumerate() {
        let shot = Shot::by(*by, &scene, "POST", path).key(&format!("odd-{place}"));
        wrong.extend(fired(&scene, shot.body(body.as_bytes().to_vec()), (*status, *code)).await);
    }
    let start = br#"{"reason": "r", "workflow": "wait"}"#;
    for (key, status, code) in KEYS {
        let shot = Shot::by(Own(Operate), &scene, "POST", "/runs").header("idempotency-key", *key);
        wrong.extend(fired(&scene, shot.body(start.to_vec()), (*status, *code)).await);
    }
    for (method, path) in
        [("DELETE", "/runs"), ("GET", "/erase"), ("PUT", "/guard/begin"), ("POST", "/openapi.json")]
    {
        let shot = Shot::by(Own(Admin), &scene, method, path);
        wrong.extend(fired(&scene, shot, (405, "method_not_allowed")).await);
    }
    for last in ["x", "\u{e4}", &scene.cursors[1], &scene.cursors[2]] {
        let shot = Shot::by(Own(Read), &scene, "GET", "/events").header("last-event-id", last);
        wrong.extend(fired(&scene, shot, (400, "malformed")).await);
    }
    assert!(wrong.is_empty(), "{} answers are wrong:\n{}", wrong.len(), wrong.join("\n"));
    scene.end().await;
}

/// A request with what only this scene has: another tenant's permit, an open question, a review.
#[tokio::test]
async fn what_belongs_to_another_tenant_or_version_is_refused() {
    let scene = Box::pin(Scene::new()).await;
    let (own, foreign) = (&scene.permits[0], &scene.permits[1]);
    let done = r#""outcome": {"done": {"output": 1}}, "wait_ms": 0"#;
    let (question, approval) = (&scene.parts["question"][0], scene.parts["approval"][0].replace('/', "%2F"));
    let (open, close) = ("[".repeat(126), "]".repeat(126)); // as deep as a body may be
    let deep =
        format!(r#"{{"tool": "refund", "key": "deep", "input": {open}{close}, "reviewers": ["ann"]}}"#);
    let cases = [
        (Call, "/guard/seal".to_owned(), format!(r#"{{"permit": "{foreign}", {done}}}"#), 404, "not_found"),
        (
            Call,
            "/guard/seal".to_owned(),
            format!(r#"{{"permit": "{}", {done}}}"#, own.replace('.', "")),
            404,
            "not_found",
        ),
        (
            Call,
            "/guard/reconcile".to_owned(),
            format!(r#"{{"permit": "{own}", "finding": "not_found"}}"#),
            404,
            "not_found",
        ),
        (Call, "/guard/seal".to_owned(), format!(r#"{{"permit": "{own}", {done}}}"#), 200, ""),
        (
            Decide,
            format!("/questions/{question}/answer"),
            r#"{"reason": "r", "answer": "withdrawn"}"#.to_owned(),
            409,
            "answer",
        ),
        (
            Decide,
            format!("/approvals/{approval}/decision"),
            r#"{"reason": "r", "version": 2, "approve": true}"#.to_owned(),
            409,
            "vote",
        ),
        (Call, "/guard/begin".to_owned(), deep.clone(), 200, ""),
        (Call, "/guard/begin".to_owned(), deep, 200, ""), // what was stored is read again
        (
            Operate,
            "/runs".to_owned(),
            r#"{"reason": "r", "workflow": "wait", "input": 1}"#.to_owned(),
            201,
            "",
        ),
        (
            Operate,
            "/runs".to_owned(),
            r#"{"reason": "r", "workflow": "wait", "input": 2}"#.to_owned(),
            409,
            "conflict",
        ),
    ];
    let mut wrong = Vec::new();
    for (role, path, body, status, code) in cases {
        let shot = Shot::by(Own(role), &scene, "POST", &path).key("k").body(body.into_bytes());
        wrong.extend(fired(&scene, shot, (status, code)).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    scene.still_works().await;
    scene.end().await;
}

// A detail quoted the whole value that no field takes, up to the limit of a body.
#[tokio::test]
async fn a_refusal_quotes_no_more_than_the_beginning_of_a_long_request() {
    let scene = Box::pin(Scene::new()).await;
    for filler in ["x", "\u{e4}", "\\u0001", "\\\""] {
        let long = filler.repeat((LIMIT - 100) / filler.len());
        for (path, body) in [
            ("/questions/question-1/answer", format!(r#"{{"reason": "r", "answer": "{long}"}}"#)),
            ("/questions/question-1/answer", format!(r#"{{"reason": "r", "{long}": 1}}"#)),
            ("/approvals/none/decision", format!(r#"{{"reason": "r", "approve": "{long}"}}"#)),
        ] {
            let shot = Shot::by(Own(Decide), &scene, "POST", path).key("k").body(body.into_bytes());
            assert_eq!(fired(&scene, shot, (400, "malformed")).await, None); // the length is judged with the rest
        }
    }
    let over = Shot::by(Own(Operate), &scene, "POST", "/runs").key("k").body(vec![b' '; LIMIT + 1]);
    assert_eq!(fired(&scene, over, (413, "request_too_large")).await, None);
    scene.end().await;
}
