//! The program on an encrypted ledger.

use std::path::Path;

use counterfoil::store::encryption::Keyring;
use serde_json::{Value, json};

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

// A key went out of its file too early, and its texts could not be read again.
#[test]
fn the_doctor_counts_the_texts_that_name_each_key_and_names_keys_that_the_file_lacks() {
    for place in Place::both() {
        let world = World::new();
        let folder = tempfile::tempdir().unwrap();
        let line_of = |id: &str, digits: &str| format!("* {id} {}", digits.repeat(32));
        let [k1, k2, k3] = [("k1", "a1"), ("k2", "b2"), ("k3", "c3")].map(|(id, digits)| line_of(id, digits));
        let file = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let first = file("first.keys", format!("{k1}\n"));
        let second = file("second.keys", format!("{k1}\n{k2} write\n{k3}\n"));
        let third = file("third.keys", format!("{k1}\n{k3} write\n"));
        let code = flow!(world, |ctx, what: String| ctx.call::<Ring>(what).await);
        for (keys, what) in [(&first, "door"), (&second, "phone")] {
            let engine = place.engine(&world).workflow("ring", 1, code.clone());
            let process = Process::start(&world, engine.encrypted(Keyring::read(keys).unwrap()));
            process.on(async {
                process.acme().run(code.clone(), what.to_owned()).await.unwrap();
            });
            process.shut_down();
        }

        let doctor = |keys: &Path| {
            let output = Line::at(&place, &world).with("--keys", keys).whole().run(&["doctor", "--json"]);
            let text = String::from_utf8(output.stdout).unwrap();
            let told = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            (told.collect::<Vec<_>>(), output.status.code())
        };
        let (told, code) = doctor(&second);
        assert_eq!(code, Some(0), "{told:#?}");
        let notes: Vec<_> = told.iter().map(|told| told["note"].as_str().unwrap()).collect();
        assert_eq!(notes.len(), 3, "{notes:#?}");
        assert!(notes[0].ends_with("texts of tenant acme name the key k1"), "{notes:#?}");
        assert!(notes[1].ends_with("texts of tenant acme name the key k2"), "{notes:#?}");
        assert_eq!(notes[2], "no text names the key k3 of *");

        let (told, code) = doctor(&third);
        assert_eq!(code, Some(1), "{told:#?}");
        let lacks = told[0]["found"].as_str().unwrap();
        assert!(lacks.ends_with("texts of tenant acme name the key k2, which the file lacks"), "{told:#?}");
        assert!(told[1..].iter().all(|told| told["note"].is_string()), "{told:#?}");
    }
}
