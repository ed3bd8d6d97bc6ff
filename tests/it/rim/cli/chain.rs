//! The program on a ledger with a chain of evidence.

use counterfoil::store::chain::ChainKey;
use serde_json::json;

use super::Line;
use crate::flow;
use crate::flow::answers::Place;
use crate::flow::tools::Ring;
use crate::flow::world::{Process, World};

/// The output and the exit code of a command.
fn ran(line: &Line, arguments: &[&str]) -> (String, Option<i32>) {
    let output = line.run(arguments);
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8(text).unwrap(), output.status.code())
}

#[test]
fn evidence_is_verified_with_the_secret_and_shows_damage_without_it() {
    for place in Place::both() {
        let world = World::new();
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("chain.secret");
        std::fs::write(&secret, format!("{}\n", "a1".repeat(32))).unwrap();
        let code = flow!(world, |ctx, what: String| ctx.call::<Ring>(what).await);
        let engine = place.engine(&world).workflow("ring", 1, code.clone());
        let process = Process::start(&world, engine.evidence_chain(ChainKey::read(&secret).unwrap()));
        let (bare, line) = (Line::at(&place, &world), Line::at(&place, &world).with("--chain", &secret));
        let run = line.json(&["start", "ring", "\"door\"", "--key", "door/1"]).remove(0);
        let run = run["id"].as_str().unwrap().to_owned();
        process.on(process.state(run.parse().unwrap(), "succeeded"));
        let key = line.json(&["records"])[0]["key"].as_str().unwrap().to_owned();

        // Beside the engine, of one call and of the whole ledger.
        let text = line.text(&["evidence", &key, "--verify"]);
        assert!(text.contains("committed") && text.contains("chain         whole: 1 rows fit"), "{text}");
        let report = line.json(&["evidence", "--verify"]).remove(0);
        assert_eq!(
            (&report["is_signed"], &report["rows"], &report["found"]),
            (&json!(true), &json!(1), &json!(0))
        );
        let anchor = folder.path().join("anchor.json");
        std::fs::write(&anchor, report.to_string()).unwrap();
        let of_call = line.json(&["evidence", &key, "--verify", "--anchor", &anchor.display().to_string()]);
        assert_eq!((&of_call[0]["key"], &of_call[0]["chain"]["found"]), (&json!(key), &json!(0)));

        // Without the secret the rows are compared, and signatures are not. All other commands are refused.
        let (text, code) = ran(&bare, &["evidence", "--verify"]);
        assert!(code == Some(0) && text.contains("damage, not intent"), "{text}");
        let (text, code) = ran(&bare, &["runs"]);
        assert!(code == Some(1) && text.contains("the ledger has a chain of evidence"), "{text}");
        let (text, code) = ran(&bare.with("--chain", &folder.path().join("nowhere")), &["runs"]);
        assert!(code == Some(1) && text.contains("cannot be read"), "{text}");

        // A secret that is not the ledger's is no reason to believe what is unsigned.
        let other = folder.path().join("other.secret");
        std::fs::write(&other, "b2".repeat(32)).unwrap();
        let (text, code) = ran(&bare.with("--chain", &other), &["evidence", "--verify"]);
        assert!(code == Some(1) && text.contains("mark altered"), "{text}");

        // An anchor of another ledger names links that are not here.
        let other = json!({"heads": [{"chain": 5, "number": 3, "signature": "00"}]});
        std::fs::write(&anchor, other.to_string()).unwrap();
        let anchored = ["evidence", "--verify", "--anchor", &anchor.display().to_string()];
        let (text, code) = ran(&line, &anchored);
        assert!(code == Some(1) && text.contains("cut off: link 3 of chain 5"), "{text}");
        std::fs::write(&anchor, "{}").unwrap();
        let (text, code) = ran(&line, &anchored);
        assert!(code == Some(1) && text.contains("holds no anchor"), "{text}");
        process.shut_down();
    }
}

#[test]
fn a_ledger_without_a_chain_has_nothing_to_verify() {
    let world = World::new();
    let place = Place::File;
    let process = Process::start(&world, place.engine(&world));
    let (text, code) = ran(&Line::at(&place, &world), &["evidence", "--verify"]);
    assert!(code == Some(1) && text.contains("no chain of evidence"), "{text}");
    let (text, code) = ran(&Line::at(&place, &world), &["evidence"]);
    assert!(code == Some(2) && text.contains("required"), "{text}");
    process.shut_down();
}
