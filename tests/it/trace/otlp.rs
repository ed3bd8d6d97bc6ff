//! What a collector of OpenTelemetry gets: a receiver of OTLP over HTTP, made of the protocol's own types.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use counterfoil::Engine;
use counterfoil::trace::{OpenTelemetry, TraceContext};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::json;

use super::{CALLER, Kept, seat};
use crate::flow::world::World;
use crate::world::serve;

type Taken = Arc<Mutex<Vec<ExportTraceServiceRequest>>>;

/// A collector that takes what it gets, and its URL.
async fn collector() -> (Taken, String) {
    let taken = Taken::default();
    let into = taken.clone();
    let take = move |body: Bytes| {
        let into = into.clone();
        async move {
            into.lock().unwrap().push(ExportTraceServiceRequest::decode(body).unwrap());
            StatusCode::OK
        }
    };
    let url = serve(Router::new().route("/v1/traces", post(take))).await;
    (taken, format!("{url}/v1/traces"))
}

#[tokio::test]
async fn a_collector_gets_the_whole_trace_under_the_services_name() {
    let (taken, url) = collector().await;
    let (world, kept) = (World::new(), Kept::default());
    let spans = OpenTelemetry::otlp("travel", &url).unwrap();
    let engine =
        Engine::in_memory().dynamic_tool(kept.book(&world)).workflow("seat", 1, seat).spans(spans.clone());
    let engine = engine.start().await.unwrap();
    let caller: TraceContext = CALLER.parse().unwrap();
    let answer = engine.tenant("acme").unwrap().run(seat, "7a".to_owned()).traceparent(caller).await.unwrap();
    assert_eq!(answer, json!("booked"));
    spans.flush().await;

    let taken = taken.lock().unwrap();
    let of_service: Vec<_> = taken.iter().flat_map(|request| &request.resource_spans).collect();
    let service =
        of_service[0].resource.as_ref().unwrap().attributes.iter().find(|one| one.key == "service.name");
    assert!(format!("{service:?}").contains("travel"));
    let got: Vec<&Span> =
        of_service.iter().flat_map(|spans| &spans.scope_spans).flat_map(|scope| &scope.spans).collect();
    let mut names: Vec<_> = got.iter().map(|span| span.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["attempt book", "run seat", "step choose"]);
    let find = |name| *got.iter().find(|span| span.name == name).unwrap();
    let run = find("run seat");
    assert_eq!((&run.trace_id[..], &run.parent_span_id[..]), (&caller.trace[..], &caller.span[..]));
    for name in ["attempt book", "step choose"] {
        let span = find(name);
        assert_eq!((&span.trace_id, &span.parent_span_id), (&run.trace_id, &run.span_id), "{name}");
        assert!(
            span.start_time_unix_nano > 0 && span.start_time_unix_nano <= span.end_time_unix_nano,
            "{name}"
        );
    }
    assert_eq!(find("attempt book").span_id, kept.sent()[0].span);
    assert!(find("attempt book").attributes.iter().any(|one| one.key == "counterfoil.external_ref"));
}

#[tokio::test]
async fn a_collector_that_is_away_holds_nobody_up() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let (world, kept) = (World::new(), Kept::default());
    let spans = OpenTelemetry::otlp("travel", &format!("http://127.0.0.1:{port}/v1/traces")).unwrap();
    let engine =
        Engine::in_memory().dynamic_tool(kept.book(&world)).workflow("seat", 1, seat).spans(spans.clone());
    let engine = engine.start().await.unwrap();
    engine.tenant("acme").unwrap().run(seat, "7a".to_owned()).await.unwrap();
    spans.flush().await;
}

#[tokio::test]
async fn what_is_no_url_is_refused() {
    for bad in ["", "collector", "ftp://collector", "http://"] {
        let refused = OpenTelemetry::otlp("travel", bad).unwrap_err().to_string();
        assert!(refused.starts_with("spans cannot be sent to"), "{bad}: {refused}");
    }
}

#[test]
fn there_has_to_be_a_runtime() {
    let refused = OpenTelemetry::otlp("travel", "http://127.0.0.1:4318/v1/traces").unwrap_err();
    assert!(refused.to_string().contains("Tokio runtime"));
}
