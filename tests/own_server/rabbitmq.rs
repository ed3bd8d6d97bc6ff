//! A RabbitMQ of its own: a node, its queues, and a connection to it.

use std::path::Path;
use std::process::Command;

use lapin::types::{AMQPValue, FieldTable};
use lapin::{Connection, ConnectionProperties};

use super::daemon::Daemon;

/// A node of its own in its folder. Erlang's port mapper is started beside it, on a port of its own, or the node would start one that
/// stays behind for ever.
pub(crate) fn server(port: u16, folder: &Path) -> Command {
    let mut command = command("sh", port, folder);
    command.args(["-c", r#"epmd -port "$ERL_EPMD_PORT" & exec /usr/lib/rabbitmq/bin/rabbitmq-server"#]);
    command
}

/// A program that knows the node.
fn command(program: &str, port: u16, folder: &Path) -> Command {
    let mut command = Command::new(program);
    let at = |name: &str| folder.join(name);
    command
        .env("HOME", folder)
        .env("ERL_EPMD_PORT", (port - 16_000).to_string())
        .env("ERL_EPMD_ADDRESS", "127.0.0.2")
        .env("RABBITMQ_USE_LONGNAME", "true")
        .env("RABBITMQ_NODENAME", format!("counterfoil{port}@127.0.0.2"))
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", port.to_string())
        .env("RABBITMQ_DIST_PORT", port.to_string())
        .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,2}")
        .env("RABBITMQ_MNESIA_BASE", at("mnesia"))
        .env("RABBITMQ_LOG_BASE", at("logs"))
        .env("RABBITMQ_LOGS", "-")
        .env("RABBITMQ_PID_FILE", at("pid"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", at("plugins"))
        .env("RABBITMQ_CONFIG_FILE", at("no-config"))
        .env("RABBITMQ_CONF_ENV_FILE", "/dev/null");
    command
}

pub(crate) fn uri(port: u16) -> String {
    format!("amqp://guest:guest@127.0.0.1:{port}/%2f")
}

pub(crate) fn long(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

/// With a place for dead letters, and these arguments beside.
pub(crate) fn arguments(queue: &str, more: &[(&str, AMQPValue)]) -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-dead-letter-exchange".into(), long(""));
    arguments.insert("x-dead-letter-routing-key".into(), long(&format!("{queue}.aside")));
    for (name, value) in more {
        arguments.insert((*name).into(), value.clone());
    }
    arguments
}

/// When the node takes part: its port opens before.
pub(crate) async fn connected(port: u16) -> Connection {
    loop {
        if let Ok(connection) = Connection::connect(&uri(port), ConnectionProperties::default()).await {
            return connection;
        }
    }
}

/// Has the node write down which queues there are. It does so some time after it has said so, and forgets a queue if it is killed before.
pub(crate) async fn write_down(server: &Daemon) {
    let node = command("/usr/lib/rabbitmq/bin/rabbitmqctl", server.port(), server.folder());
    let mut asks = tokio::process::Command::from(node);
    let answer =
        asks.args(["--quiet", "eval", "mnesia:dump_log()."]).kill_on_drop(true).output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout).trim(), "dumped", "{answer:?}");
}
