//! A notification provider for demos and kill tests: `provider <sqlite file> [port]`.
//!
//! It plays the outside world. It is a program of its own, with its own file, so that killing a worker leaves it standing and
//! its count of effects can be trusted. It knows nothing of counterfoil.

mod server;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::path::Path;

use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let db = arguments.next().ok_or("usage: provider <sqlite file> [port]")?;
    let port: u16 = arguments.next().map_or(Ok(0), |port| port.parse())?;

    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    // Connections wait in the listener's queue from here on, so whoever reads this line may already send.
    println!("listening on http://{}", listener.local_addr()?);
    server::serve(Path::new(&db), listener).await
}
