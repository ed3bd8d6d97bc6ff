//! A browser with a window of its own, driven by `WebDriver` (<https://www.w3.org/TR/webdriver2/>) in plain HTTP.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use counterfoil::clock::{Clock as _, SystemClock};
use reqwest::Method;
use serde_json::{Value, json};

use crate::own_server::daemon::Daemon;

/// The longest time that a page may take to show something.
const PATIENCE: u32 = 400;
/// The name under which the protocol hands out elements.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

pub(super) struct Browser {
    driver: Daemon,
    client: reqwest::Client,
    session: String,
}

fn command(port: u16, folder: &Path) -> Command {
    let mut command = Command::new("chromedriver");
    command.arg(format!("--port={port}")).env("HOME", folder).env("TMPDIR", folder);
    command
}

impl Browser {
    /// A browser without a profile, in a light or a dark desktop.
    pub(super) async fn start(scheme: &str) -> Self {
        let driver = Daemon::start(command).await;
        let mut browser = Self { driver, client: reqwest::Client::new(), session: String::new() };
        let profile = browser.driver.folder().join("profile");
        let mut flags: Vec<_> = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
        ]
        .map(str::to_owned)
        .into();
        flags.push(format!("--user-data-dir={}", profile.display()));
        let options = json!({ "args": flags, "binary": "/usr/bin/chromium" });
        let wanted = json!({ "capabilities": { "alwaysMatch": { "browserName": "chrome", "goog:chromeOptions": options } } });
        let begun = browser.ask(Method::POST, "/session", Some(wanted)).await.unwrap();
        browser.session = begun["sessionId"].as_str().unwrap().to_owned();
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let emulated = json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": features } });
        browser.done(Method::POST, "/goog/cdp/execute", Some(emulated)).await;
        browser.resize(1280, 900).await;
        browser
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value, Value> {
        let session =
            if self.session.is_empty() { String::new() } else { format!("/session/{}", self.session) };
        let url = format!("http://127.0.0.1:{}{session}{path}", self.driver.port());
        let request = self.client.request(method, url);
        let request = if let Some(body) = body { request.json(&body) } else { request };
        let mut answer: Value = request.send().await.unwrap().json().await.unwrap();
        let value = answer["value"].take();
        if value["error"].is_string() { Err(value) } else { Ok(value) }
    }

    async fn done(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        self.ask(method, path, body).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(super) async fn resize(&self, width: u32, height: u32) {
        // The window of a headless browser has a smallest width; the page may be narrower.
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": size });
        self.done(Method::POST, "/goog/cdp/execute", Some(command)).await;
    }

    pub(super) async fn open(&self, url: &str) {
        self.done(Method::POST, "/url", Some(json!({ "url": url }))).await;
    }

    pub(super) async fn url(&self) -> String {
        self.done(Method::GET, "/url", None).await.as_str().unwrap().to_owned()
    }

    /// Runs a script in the page, and returns what it returns.
    pub(super) async fn run(&self, script: &str) -> Value {
        let body = json!({ "script": script, "args": [] });
        self.done(Method::POST, "/execute/sync", Some(body)).await
    }

    /// Runs a script that says by `arguments[0]` what it has found.
    pub(super) async fn run_to_end(&self, script: &str) -> Value {
        let body = json!({ "script": script, "args": [] });
        self.done(Method::POST, "/execute/async", Some(body)).await
    }

    /// The text of the page, as a person sees it.
    pub(super) async fn text(&self) -> String {
        self.run("return document.body.innerText").await.as_str().unwrap().to_owned()
    }

    /// Waits until an expression of a script is true in the page, and returns false if it never is.
    pub(super) async fn comes_true(&self, expression: &str) -> bool {
        let body = json!({ "script": format!("return Boolean({expression})"), "args": [] });
        for _ in 0..PATIENCE {
            if self.ask(Method::POST, "/execute/sync", Some(body.clone())).await == Ok(json!(true)) {
                return true;
            }
            SystemClock.sleep(Duration::from_millis(50)).await;
        }
        false
    }

    /// Waits until the page shows a text.
    pub(super) async fn shows(&self, text: &str) {
        let is_shown = self.comes_true(&format!("document.body.innerText.includes({})", json!(text))).await;
        assert!(is_shown, "the page does not show {text:?}, but {}", self.text().await);
    }

    async fn element(&self, xpath: &str) -> String {
        let found =
            self.done(Method::POST, "/element", Some(json!({ "using": "xpath", "value": xpath }))).await;
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    /// Clicks what an `XPath` finds.
    pub(super) async fn click(&self, xpath: &str) {
        self.act(xpath, "click", json!({})).await;
    }

    /// Types a text into what an `XPath` finds.
    pub(super) async fn type_into(&self, xpath: &str, text: &str) {
        self.act(xpath, "value", json!({ "text": text })).await;
    }

    /// Does something to what an `XPath` finds. The page may replace that before the request, or while the driver brings it into
    /// view and gives it the focus: then it is found again.
    async fn act(&self, xpath: &str, what: &str, body: Value) {
        let mut refusal = Value::Null;
        for _ in 0..PATIENCE {
            let path = format!("/element/{}/{what}", self.element(xpath).await);
            match self.ask(Method::POST, &path, Some(body.clone())).await {
                Ok(_) => return,
                Err(error) => refusal = error,
            }
            assert!(
                ["stale element reference", "element not interactable"]
                    .iter()
                    .any(|passing| refusal["error"] == *passing),
                "{xpath}: {refusal}"
            );
            SystemClock.sleep(Duration::from_millis(50)).await;
        }
        panic!("{xpath}: {refusal}");
    }

    /// Presses a key, wherever the focus is.
    pub(super) async fn press(&self, key: char) {
        let keys = json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        let actions = json!({ "actions": [{ "type": "key", "id": "keys", "actions": keys }] });
        self.done(Method::POST, "/actions", Some(actions)).await;
    }

    /// Keeps a picture of the whole page.
    pub(super) async fn picture(&self, name: &str) {
        let command = json!({ "cmd": "Page.captureScreenshot", "params": { "captureBeyondViewport": true } });
        let taken = self.done(Method::POST, "/goog/cdp/execute", Some(command)).await;
        let png = base64::engine::general_purpose::STANDARD.decode(taken["data"].as_str().unwrap()).unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/screenshots");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), png).unwrap();
    }
}
