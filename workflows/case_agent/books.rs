//! The outside world of the agent: books in which things are written, by key, and can be found. A text file, or, in a
//! simulation, a provider that suffers every fault.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use counterfoil::ledger::{ErrorKind, LookupResult};
#[cfg(feature = "sim")]
use counterfoil::sim::Service;
use counterfoil::tool::{Call, Done, ToolError};

/// The books. Clones are the same books.
#[derive(Clone)]
pub enum Books {
    File(Arc<Mutex<PathBuf>>),
    #[cfg(feature = "sim")]
    Simulated(Service),
}

impl Books {
    /// Kept in a text file: a line for each thing, with its key.
    pub fn file(path: PathBuf) -> Self {
        Self::File(Arc::new(Mutex::new(path)))
    }

    /// Writes it down, unless something is there under this key.
    pub async fn write(&self, call: &Call, kind: &str, what: &str) -> Result<Done<String>, ToolError> {
        match self {
            Self::File(path) => {
                let path = path.lock().unwrap_or_else(PoisonError::into_inner);
                let id = line(&path, call.key()).map_or_else(|| append(&path, call.key(), kind, what), Ok);
                let id = id.map_err(|e| ToolError::new(ErrorKind::Unknown, e.to_string()))?;
                Ok(Done::new(id.clone()).external_ref(id))
            }
            #[cfg(feature = "sim")]
            Self::Simulated(service) => {
                let done = service.create(call, &reference(kind, what)).await?;
                Ok(done.map(|output| id(&output)))
            }
        }
    }

    /// Finds what is written under this key.
    pub async fn find(&self, call: &Call, kind: &str, what: &str) -> Result<LookupResult<String>, ToolError> {
        match self {
            Self::File(path) => {
                let found = line(&path.lock().unwrap_or_else(PoisonError::into_inner), call.key());
                Ok(found.map_or(LookupResult::NotFound, |id| LookupResult::Committed {
                    output: id.clone(),
                    external_ref: Some(id),
                }))
            }
            #[cfg(feature = "sim")]
            Self::Simulated(service) => {
                service.find(call, &reference(kind, what)).await?.try_map(|found| Ok(id(&found)))
            }
        }
    }

    /// All that is written in the file.
    #[allow(dead_code, reason = "a simulation counts for itself")]
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::File(path) => lines(&path.lock().unwrap_or_else(PoisonError::into_inner)),
            #[cfg(feature = "sim")]
            Self::Simulated(_) => Vec::new(),
        }
    }
}

/// By what a simulated provider knows it.
#[cfg(feature = "sim")]
pub fn reference(kind: &str, what: &str) -> String {
    format!("{kind}: {what}")
}

#[cfg(feature = "sim")]
fn id(answer: &serde_json::Value) -> String {
    answer["id"].as_str().unwrap_or_default().to_owned()
}

fn lines(path: &PathBuf) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn line(path: &PathBuf, key: &str) -> Option<String> {
    let place = lines(path).iter().position(|line| line.starts_with(key))?;
    Some(format!("entry {}", place + 1))
}

fn append(path: &PathBuf, key: &str, kind: &str, what: &str) -> std::io::Result<String> {
    let mut file = std::fs::File::options().append(true).create(true).open(path)?;
    writeln!(file, "{key} {kind}: {what}")?;
    Ok(format!("entry {}", lines(path).len()))
}
