//! The configuration file: what is wrong in it is named by its line, with what to write instead.

use counterfoil::mcp::{McpConfig, McpError, McpGateway};

fn refused(file: &str) -> (u64, String, String) {
    let Err(McpError::Config(findings)) = McpConfig::parse(file) else { panic!("{file}") };
    let finding = &findings[0];
    (finding.line, finding.path.clone(), finding.to_string())
}

#[test]
fn the_example_is_a_configuration() {
    let config = McpConfig::parse(include_str!("../../../../docs/gateway.yml")).unwrap();
    assert_eq!(config.ledger().to_str(), Some("calls.db"));
}

#[test]
fn the_guide_shows_the_example() {
    let guide = include_str!("../../../../docs/mcp.md");
    assert!(
        guide.contains(include_str!("../../../../docs/gateway.yml").trim()),
        "copy docs/gateway.yml into docs/mcp.md"
    );
}

#[test]
fn what_is_wrong_is_named_by_its_line() {
    let server = "ledger: calls.db\nservers:\n  notes:\n    command: notes\n    tools:\n      x:\n";
    let secret = format!("{server}        redact: [/card/number]\n        lookup: {{ tool: list, at: /a, ");
    for (file, line, told) in [
        ("servers:\n  notes: { command: notes }\n".to_owned(), 1, "ledger"),
        ("ledger: calls.db\n".to_owned(), 1, "no server"),
        ("ledger: calls.db\nservers:\n  notes: {}\n".to_owned(), 3, "is a program"),
        ("ledger: calls.db\nwindow: 8 days\nservers:\n  notes: { command: a }\n".to_owned(), 2, "7 days"),
        (format!("{server}        efect: payment\n"), 7, "`effect`"),
        (format!("{server}        effect: paymend\n"), 7, "`payment`"),
        (format!("{server}        effect: payment\n"), 6, "lookup"),
        (format!("{server}        effect: deletion\n"), 6, "reviewers"),
        (format!("{server}        contract: lookup\n"), 7, "lookup"),
        (format!("{server}        key: []\n"), 7, "all calls one"),
        (format!("{server}        lookup: {{ at: /notes }}\n"), 7, "another tool"),
        (format!("{server}        lookup: {{ tool: list }}\n"), 7, "any answer"),
        (format!("{server}        lookup: {{ tool: list, at: /notes }}\n"), 7, "any answer"),
        (format!("{server}        lookup: {{ tool: list, matches: {{}}, contains: '' }}\n"), 7, "any answer"),
        (format!("{secret}arguments: {{ card: '{{/card/number}}' }} }}\n"), 8, "not kept"),
        (format!("{secret}contains: 'of {{/card}}' }}\n"), 8, "not kept"),
        (format!("{secret}arguments: {{ q: ['{{/card/number/last}}'] }} }}\n"), 8, "not kept"),
        (format!("{server}        key: [order]\n"), 7, "slash"),
        (format!("{server}        quota: {{ calls: 3 }}\n"), 7, "within a time"),
        (format!("{server}        elicit_within: 1 min\n"), 7, "not asked"),
    ] {
        let (found, _, text) = refused(&file);
        assert!(found == line && text.contains(told), "{file}\n{text}");
    }
}

#[test]
fn a_notification_that_nobody_can_look_up_is_asked_for_by_name() {
    let notice = |contract: &str| {
        McpConfig::parse(format!(
            "ledger: calls.db\nservers:\n  mail:\n    command: mail\n    tools:\n      send: {{ effect: notification, approval: nobody{contract} }}\n"
        ))
    };
    assert!(notice("").is_err());
    assert!(notice(", contract: blind").is_ok());
}

#[tokio::test]
async fn a_gateway_whose_keys_cannot_be_read_opens_no_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, keys) = (folder.path().join("calls.db"), folder.path().join("ledger.keys"));
    let file = format!(
        "ledger: {}\nkeys: {}\nservers: {{ notes: {{ command: notes-server }} }}\n",
        ledger.display(),
        keys.display()
    );
    let open = async || McpGateway::open(McpConfig::parse(&file).unwrap()).await;
    let error = open().await.err().unwrap();
    assert!(matches!(error, McpError::Keys { .. }) && error.to_string().contains("ledger.keys"), "{error}");
    assert!(!ledger.exists());
    std::fs::write(&keys, format!("* k1 {}\n", "a1".repeat(32))).unwrap();
    open().await.unwrap().shutdown(std::time::Duration::ZERO).await;
    std::fs::write(&keys, format!("* k1 {}\n", "b2".repeat(32))).unwrap();
    let error = open().await.err().unwrap();
    assert!(matches!(error, McpError::Start(_)) && error.to_string().ends_with("[encryption]"), "{error}");
}
