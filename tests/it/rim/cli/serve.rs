//! What `serve` refuses to be shown to others, and what it tells the dashboard of the proxy in front.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use super::{Line, Server, program};
use crate::flow::answers::Place;
use crate::flow::world::{Process, World};

/// A server that others can reach, or why it is refused.
fn served_to_others(line: &Line) -> Result<Server, String> {
    let mut command = program(&["serve", "--listen", "0.0.0.0:0", "--behind-tls"]);
    let database = line.0.iter().skip(2); // a server has no tenant
    let command = command.args(database).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut said = String::new();
    BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    if let Some(url) = said.trim().strip_prefix("listening at ") {
        return Ok(Server { process, url: url.to_owned() });
    }
    let refused = process.wait_with_output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    Err(String::from_utf8(refused.stderr).unwrap())
}

#[test]
fn an_address_that_others_can_reach_is_not_served_while_there_is_no_valid_token() {
    for place in Place::both() {
        let world = World::new();
        let process = Process::start(&world, place.engine(&world));
        let line = Line::at(&place, &world);
        let refused = || {
            let error = served_to_others(&line).err().expect("nobody could use the server");
            assert!(error.contains("`counterfoil token create NAME --role ROLE`"), "{error}");
        };
        refused();
        drop(Server::start(&line, &["--behind-tls"])); // on the loopback address, people try it out
        let token = line.json(&["token", "create", "bot", "--role", "read"]).remove(0);
        let server = served_to_others(&line).unwrap_or_else(|error| panic!("{error}"));
        assert!(server.url.starts_with("http://0.0.0.0:"), "{}", server.url);
        drop(server);
        line.text(&["token", "revoke", token["id"].as_str().unwrap()]);
        refused();
        process.shut_down();
    }
}

// A proxy names its own upstream as the host, as nginx does by default.
#[test]
fn behind_tls_cookies_of_the_dashboard_are_for_tls_although_the_host_is_a_loopback_one() {
    let (world, place) = (World::new(), Place::File);
    let process = Process::start(&world, place.engine(&world));
    let line = Line::at(&place, &world);
    for (more, is_for_tls) in [(&[][..], false), (&["--behind-tls"][..], true)] {
        let server = Server::start(&line, more);
        let form = format!("{}/ui/sign-in", server.url);
        let set = process.on(async move {
            let answer = reqwest::get(form).await.unwrap();
            answer.headers()["set-cookie"].to_str().unwrap().to_owned()
        });
        assert_eq!((set.starts_with("__Host-"), set.contains("; Secure")), (is_for_tls, is_for_tls), "{set}");
    }
    process.shut_down();
}
