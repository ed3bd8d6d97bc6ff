//! The probes of `serve`.

use super::{Line, Server};
use crate::flow::answers::Place;
use crate::flow::world::{Process, World};

/// The status and the text of a probe.
async fn probe(url: &str, path: &str) -> (u16, String) {
    let answer = reqwest::get(format!("{url}{path}")).await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[test]
fn the_probes_say_that_the_server_is_live_and_ready_without_a_token() {
    for place in Place::both() {
        let world = World::new();
        let process = Process::start(&world, place.engine(&world));
        let server = Server::start(&Line::at(&place, &world), &[]);
        let url = server.url.clone();
        process.on(async move {
            assert_eq!(probe(&url, "/healthz").await, (200, "ready\n".to_owned()));
            assert_eq!(probe(&url, "/readyz").await, (200, "ready\n".to_owned()));
            assert_eq!(probe(&url, "/runs").await.0, 401, "nothing else is without a token");
        });
        process.shut_down();
    }
}

#[test]
fn a_server_whose_file_is_gone_is_live_and_not_ready() {
    let (world, place) = (World::new(), Place::File);
    Process::start(&world, place.engine(&world)).shut_down();
    let server = Server::start(&Line::at(&place, &world), &[]);
    std::fs::rename(world.path(), world.path().with_extension("gone")).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let (status, told) = probe(&server.url, "/readyz").await;
        assert!(status == 503 && told.contains("was removed or replaced"), "{status} {told}");
        assert_eq!(probe(&server.url, "/healthz").await.0, 200);
    });
}
