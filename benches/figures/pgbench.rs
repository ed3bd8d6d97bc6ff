//! pgbench: the rate of PostgreSQL's own client with two transactions per step, on many connections.

use std::path::PathBuf;
use std::process::Command;

use tempfile::NamedTempFile;

use crate::place::Place;
use crate::raw;

/// The number of connections, as the figures are defined.
pub(crate) const CONNECTIONS: u32 = 32;

pub(crate) struct Pgbench {
    program: PathBuf,
    script: NamedTempFile,
    url: String,
    schema: String,
}

impl Pgbench {
    /// Steps on the table of the raw line: a row inserted without its response, durable, then updated with it, durable.
    pub(crate) fn of(place: &Place) -> Result<Self, String> {
        let Place::Schema { url, name } = place else { return Err("pgbench works on PostgreSQL".into()) };
        let program = std::env::var_os("PG_BIN").map_or_else(
            || "pgbench".into(), // on the path, for a server elsewhere
            |bin| PathBuf::from(bin).join("pgbench"),
        );
        let script = NamedTempFile::new().map_err(|e| e.to_string())?;
        // No other colon: pgbench takes a word after one for a variable, even inside a text.
        let key = "'touch-case-' || CAST(:number AS bigint) || '-the operation that is done to it'";
        let (hash, response) = ("07".repeat(32), raw::response());
        let text = format!(
            "\\set number random(100000000000, 100000000000000000)\n\
             INSERT INTO raw (key, hash) VALUES ({key}, '\\x{hash}');\n\
             UPDATE raw SET response = '{response}' WHERE key = {key};\n"
        );
        std::fs::write(script.path(), text).map_err(|e| e.to_string())?;
        Ok(Self { program, script, url: url.clone(), schema: name.clone() })
    }

    /// The time that `each` steps on each connection took, in seconds, without connecting.
    pub(crate) fn seconds(&self, each: u32) -> Result<f64, String> {
        let program = self.program.display();
        let done = Command::new(&self.program)
            .args(["--no-vacuum", "--protocol=prepared", "--jobs=2"])
            .args([format!("--client={CONNECTIONS}"), format!("--transactions={each}"), "--file".into()])
            .arg(self.script.path())
            .arg(&self.url)
            .env("PGOPTIONS", format!("-c search_path={}", self.schema))
            .output()
            .map_err(|e| {
                format!("{program} cannot be run ({e}): it comes with PostgreSQL's server; set PG_BIN")
            })?;
        let said = String::from_utf8_lossy(&done.stdout);
        let rate = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        let rate: Option<f64> = rate.filter(|_| done.status.success());
        let rate = rate.ok_or_else(|| {
            let errors = String::from_utf8_lossy(&done.stderr);
            format!("{program} ended with {}: {}", done.status, errors.lines().next().unwrap_or(&said))
        })?;
        Ok(f64::from(CONNECTIONS * each) / rate)
    }
}
