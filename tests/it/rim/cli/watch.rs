//! `runs --watch`, `erase` and `man`.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use counterfoil::Failure;
use serde_json::{Value, json};

use super::{Line, program};
use crate::flow;
use crate::flow::answers::Place;
use crate::flow::tools::Ring;
use crate::flow::world::{Process, World};

#[test]
fn a_list_that_is_watched_shows_each_run_again_when_it_has_changed() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| ctx.signal::<u32>("paid").await);
        let process = Process::start(&world, place.engine(&world).workflow("order", 1, code));
        let line = Line::at(&place, &world);
        let run = line.json(&["start", "order"]).remove(0)["id"].clone();
        process.on(process.state(run.as_str().unwrap().parse().unwrap(), "waiting"));
        let mut watching = program(&["runs", "--watch", "--json"]);
        let mut watching = watching.args(&line.0).stdout(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(watching.stdout.take().unwrap()).lines();
        let mut next = move || serde_json::from_str::<Value>(&told.next().unwrap().unwrap()).unwrap();
        let mut first = next();
        while first["state"] != "waiting" {
            first = next();
        }
        assert_eq!(first["id"], run);
        line.text(&["signal", run.as_str().unwrap(), "paid", "7"]);
        while next()["state"] != "succeeded" {}
        let other = line.json(&["start", "order"]).remove(0)["id"].clone();
        while next()["id"] != other {}
        watching.kill().unwrap();
        watching.wait().unwrap();
        process.shut_down();
    }
}

#[test]
fn a_tenant_or_the_content_of_a_call_is_erased_if_it_is_named_twice() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, input: u32| match input {
            0 => ctx.call::<Ring>("door".into()).await,
            _ => Ok::<_, Failure>(ctx.signal::<u32>("paid").await?),
        });
        let process = Process::start(&world, place.engine(&world).workflow("mixed", 1, code));
        let (line, whole) = (Line::at(&place, &world), Line::at(&place, &world).whole());
        let start =
            |input| line.json(&["start", "mixed", input]).remove(0)["id"].as_str().unwrap().to_owned();
        process.on(process.state(start("0").parse().unwrap(), "succeeded"));
        let key = line.json(&["records"]).remove(0)["key"].as_str().unwrap().to_owned();

        assert_eq!(whole.run(&["erase", "acme"]).status.code(), Some(2), "it is named once");
        let other = whole.run(&["erase", "acme", "--confirm", "acne"]);
        assert_eq!(other.status.code(), Some(1));
        assert_eq!(line.json(&["record", &key]).remove(0)["request"], "door");

        whole.text(&["erase", "acme", "--confirm", "acme", "--key", &key]);
        let left = line.json(&["record", &key]).remove(0);
        assert_eq!((&left["state"], &left["request"]), (&json!("gone"), &json!(null)));

        let waits = start("1");
        process.on(process.state(waits.parse().unwrap(), "waiting"));
        let refused = whole.run(&["erase", "acme", "--confirm", "acme"]);
        let error = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1));
        assert!(error.contains("nothing was erased"), "{error}");
        line.text(&["cancel", &waits, "--reason", "not wanted"]);
        process.on(process.state(waits.parse().unwrap(), "failed"));
        whole.text(&["erase", "acme", "--confirm", "acme"]);
        assert_eq!(line.text(&["records", "--json"]) + &line.text(&["runs", "--json"]), "");
        process.shut_down();
    }
}

#[test]
fn manual_pages_are_printed_for_the_program_and_for_its_commands() {
    let page = |arguments: &[&str]| {
        let printed = program(&[&["man"], arguments].concat()).output().unwrap();
        (printed.status.code(), String::from_utf8(printed.stdout).unwrap())
    };
    let (code, all) = page(&[]);
    assert!(code == Some(0) && all.contains(".TH counterfoil 1") && all.contains("doctor"), "{all}");
    let (code, of_runs) = page(&["runs"]);
    assert!(code == Some(0) && of_runs.contains("workflow"), "{of_runs}");
    assert_eq!(page(&["nothing"]).0, Some(2));
}
