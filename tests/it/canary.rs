//! The search for a text that must not be kept.

use std::path::Path;

/// The text `canary` is in no file of the folder whose name begins so.
pub(crate) fn is_in_no_file(dir: &Path, beginning: &str) {
    let mut searched = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() && entry.file_name().to_str().unwrap().starts_with(beginning)
        {
            let bytes = std::fs::read(entry.path()).unwrap();
            searched += bytes.len();
            assert!(
                !bytes.windows(6).any(|six| six == b"canary"),
                "the canary is in {}",
                entry.path().display()
            );
        }
    }
    assert!(searched > 0, "there was nothing to search");
}
