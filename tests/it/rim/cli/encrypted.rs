//! The program on an encrypted ledger.

use counterfoil::store::encryption::Keyring;
use serde_json::json;

use super::Line;
use crate::flow;
use crate::flow::answers::Place;
use crate::flow::tools::Ring;
use crate::flow::world::{Process, World};

#[test]
fn an_encrypted_ledger_is_shown_and_worked_on_with_its_keys_alone() {
    for place in Place::both() {
        let world = World::new();
        let folder = tempfile::tempdir().unwrap();
        let (keys, wrong) = (folder.path().join("ledger.keys"), folder.path().join("wrong.keys"));
        std::fs::write(&keys, format!("* k1 {}\n", "a1".repeat(32))).unwrap();
        std::fs::write(&wrong, format!("* k1 {}\n", "b2".repeat(32))).unwrap();
        let code = flow!(world, |ctx, what: String| ctx.call::<Ring>(what).await);
        let engine = place.engine(&world).workflow("ring", 1, code.clone());
        let process = Process::start(&world, engine.encrypted(Keyring::read(&keys).unwrap()));
        let line = Line::at(&place, &world).with("--keys", &keys);
        let run = line.json(&["start", "ring", "\"door\"", "--key", "door/1"]).remove(0);
        let run = run["id"].as_str().unwrap().to_owned();
        process.on(process.state(run.parse().unwrap(), "succeeded"));
        assert_eq!(line.json(&["runs"])[0]["id"], json!(run));
        let key = line.json(&["records"])[0]["key"].as_str().unwrap().to_owned();
        assert_eq!(line.json(&["record", &key])[0]["request"], json!("door"));
        assert!(line.text(&["evidence", &key]).contains("committed"));
        for (line, expected) in [
            (Line::at(&place, &world), "the ledger is encrypted, and this process has no keys"),
            (Line::at(&place, &world).with("--keys", &wrong), "the first key is another one"),
            (Line::at(&place, &world).with("--keys", &folder.path().join("none")), "cannot be read"),
        ] {
            let refused = line.run(&["runs"]);
            let error = String::from_utf8(refused.stderr).unwrap();
            assert!(refused.status.code() == Some(1) && error.contains(expected), "{error}");
        }
        process.shut_down();
    }
}
