//! Clients of `serve` that are slow, what Prometheus scrapes, and what its alerts say.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::{Line, Server};
use crate::flow::answers::Place;
use crate::flow::world::{Process, World};

/// Sends the beginning of a request, and returns what the server says until it closes the connection.
fn begun(server: &Server, text: &str) -> String {
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("the server closes the connection");
    said
}

#[test]
fn a_client_that_does_not_send_its_request_in_time_is_cut_off() {
    let (world, place) = (World::new(), Place::File);
    let process = Process::start(&world, place.engine(&world));
    let line = Line::at(&place, &world);
    let token = line.text(&["token", "create", "bot", "--role", "operate"]);
    let server = Server::start(&line, &["--head-timeout", "1", "--body-timeout", "1"]);
    assert_eq!(begun(&server, "GET /healthz HTTP/1.1\r\nHost: a\r\n"), "");
    assert_eq!(begun(&server, ""), "", "nothing at all");
    let said = begun(
        &server,
        &format!(
            "POST /runs HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\nIdempotency-Key: k\r\nContent-Length: 90\r\n\r\n{{",
            token.trim()
        ),
    );
    assert!(said.starts_with("HTTP/1.1 408 ") && said.contains("problem:request_timeout"), "{said}");
    let chunked = format!(
        "POST /runs HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\nIdempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n",
        token.trim()
    );
    assert!(begun(&server, &chunked).starts_with("HTTP/1.1 408 "));
    // The others are served meanwhile, and after it.
    let said = begun(&server, "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 200 ") && said.ends_with("ready\n"), "{said}");
    assert_eq!(line.json(&["runs"]), [] as [serde_json::Value; 0]);
    assert_eq!(server.end(), Some(0));
    process.shut_down();
}

#[test]
fn a_client_that_does_not_read_its_answers_is_cut_off_and_its_place_is_free() {
    let (world, place) = (World::new(), Place::File);
    let process = Process::start(&world, place.engine(&world));
    let server =
        Server::start(&Line::at(&place, &world), &["--write-timeout", "1", "--max-connections", "1"]);
    let mut deaf = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    // More than the buffers of the system hold.
    let requests = "GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
    deaf.write_all(requests.as_bytes()).unwrap();
    let said = begun(&server, "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    drop(deaf);
    assert_eq!(server.end(), Some(0));
    process.shut_down();
}

#[test]
fn a_connection_that_is_idle_does_not_keep_the_server() {
    let (world, place) = (World::new(), Place::File);
    let process = Process::start(&world, place.engine(&world));
    let server = Server::start(&Line::at(&place, &world), &[]);
    let idle = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    let mut kept = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = [0; 12];
    kept.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    assert_eq!(server.end(), Some(0));
    drop(idle);
    process.shut_down();
}

#[test]
fn prometheus_scrapes_the_server_with_a_token_for_all_tenants() {
    for place in Place::both() {
        let world = World::new();
        let code = crate::flow!(world, |ctx, _input: ()| ctx.signal::<u32>("paid").await);
        let process = Process::start(&world, place.engine(&world).workflow("order", 1, code.clone()));
        let line = Line::at(&place, &world);
        process.on(async {
            let run = process.acme().run(code.clone(), ()).start().await.unwrap();
            run.pause("ann", "a check").await.unwrap();
            process.state(run.id(), "blocked").await;
        });
        let single = line.text(&["token", "create", "bot", "--role", "admin"]);
        let all = line.whole().text(&["token", "create", "prometheus", "--role", "read", "--all-tenants"]);
        for more in [&[][..], &["--guard"]] {
            if matches!(place, Place::File) && !more.is_empty() {
                continue; // a file has one engine
            }
            let server = Server::start(&line, more);
            let url = server.url.clone();
            let scrape = async |token: &str| {
                let request = reqwest::Client::new().get(format!("{url}/metrics")).bearer_auth(token.trim());
                let answer = request.send().await.unwrap();
                let media = answer.headers()["content-type"].to_str().unwrap().to_owned();
                (answer.status().as_u16(), media, answer.text().await.unwrap())
            };
            process.on(async {
                assert_eq!(scrape("cft_none").await.0, 401);
                assert_eq!(scrape(&single).await.0, 403);
                loop {
                    let (status, media, text) = scrape(&all).await;
                    assert_eq!((status, &*media), (200, "text/plain; version=0.0.4; charset=utf-8"));
                    assert!(!text.contains("acme"), "it tells of no tenant: {text}");
                    if text.contains(r#"counterfoil_questions_open{kind="paused"} 1"#) {
                        break; // the gauges were read
                    }
                    tokio::task::yield_now().await;
                }
            });
        }
        process.shut_down();
    }
}

#[test]
fn the_text_of_an_alert_names_only_labels_that_its_metric_has() {
    let (mut expression, mut named) = ("", 0);
    for line in include_str!("../../../../docs/alerts.yml").lines() {
        expression = line.trim_start().strip_prefix("expr: ").unwrap_or(expression);
        for rest in line.split("$labels.").skip(1) {
            let label = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap();
            let is_kept = !expression.contains(" by (") || expression.contains(&format!(" by ({label})"));
            let mut metrics = counterfoil::metrics::all().filter(|metric| expression.contains(metric.name));
            let has = is_kept && metrics.all(|metric| metric.labels.contains(&label));
            assert!(has, "no label {label} in {expression}");
            named += 1;
        }
    }
    assert!(named >= 4, "{named}");
}
