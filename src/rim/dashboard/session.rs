//! Cookies: the token of a person who has signed in, a secret that binds forms to a browser, and what the last form has done.
//!
//! The session is the token itself, so it works in every process of a service, and a revoked token ends it at once. The cookie is
//! kept from scripts (`HttpOnly`) and from requests that other sites cause (`SameSite=Strict`), and is sent over TLS only, unless
//! the server is reached at a loopback address and no proxy is known to be in front of it: a proxy may name its own loopback address
//! to the server. The API reads no cookies.

use std::fmt::Write as _;

use http::header::{COOKIE, HOST, HeaderMap, HeaderValue, SET_COOKIE};
use http::request::Parts;
use subtle::ConstantTimeEq as _;

use crate::id::Entropy;
use crate::payload::{DigestKey, hex, unhex};

/// The names of the cookies, behind their prefix.
const TOKEN: &str = "counterfoil_token";
const VISIT: &str = "counterfoil_visit";
const TOLD: &str = "counterfoil_told";
/// The time for which a browser keeps the token, in seconds: a working day.
const DAY: u32 = 12 * 3600;

/// The cookies of a request.
#[derive(Clone)]
pub(super) struct Cookies {
    /// The token of the person who has signed in.
    pub(super) token: Option<String>,
    /// The code of what the last form has done.
    pub(super) told: Option<String>,
    visit: [u8; 32],
    /// True if the browser had no usable `visit` cookie.
    is_first: bool,
    is_secure: bool,
}

impl Cookies {
    /// The cookies of a request. `behind_tls`: a proxy in front of the server speaks TLS, whatever host the request names.
    pub(super) fn of(request: &Parts, entropy: &dyn Entropy, behind_tls: bool) -> Self {
        let is_secure = behind_tls || !is_loopback(request);
        let named = |name: &str| value(&request.headers, &full(name, is_secure));
        let visit = named(VISIT).and_then(|visit| unhex(&visit));
        Self {
            token: named(TOKEN).filter(|token| !token.is_empty()),
            told: named(TOLD).filter(|told| !told.is_empty()),
            is_first: visit.is_none(),
            visit: visit.unwrap_or_else(|| drawn(entropy)),
            is_secure,
        }
    }

    /// The secret that each form of this browser and this session carries. Another site cannot read it, and cannot compute it:
    /// it would need both cookies.
    pub(super) fn form_secret(&self) -> String {
        let session = self.token.as_deref().unwrap_or_default();
        hex(&DigestKey::new(self.visit).digest(session.as_bytes()))
    }

    /// True if a form carries this session's secret.
    pub(super) fn is_own_form(&self, secret: &str) -> bool {
        bool::from(self.form_secret().as_bytes().ct_eq(secret.as_bytes()))
    }

    /// The header that keeps the secret of the forms in a new browser.
    pub(super) fn keep_visit(&self) -> Option<HeaderValue> {
        self.is_first.then(|| self.set(VISIT, &hex(&self.visit), None)).flatten()
    }

    /// The headers that begin a session under a token. Forms of before are void.
    pub(super) fn begin(&self, token: &str, entropy: &dyn Entropy) -> Vec<HeaderValue> {
        let visit = hex(&drawn(entropy));
        [self.set(TOKEN, token, Some(DAY)), self.set(VISIT, &visit, None)].into_iter().flatten().collect()
    }

    /// The header that ends the session.
    pub(super) fn end(&self) -> Option<HeaderValue> {
        self.set(TOKEN, "", Some(0))
    }

    /// The header that lets the next page say what was done.
    pub(super) fn tell(&self, code: &'static str) -> Option<HeaderValue> {
        self.set(TOLD, code, Some(60))
    }

    /// The header that forgets it.
    pub(super) fn was_told(&self) -> Option<HeaderValue> {
        self.told.as_ref().and_then(|_| self.set(TOLD, "", Some(0)))
    }

    fn set(&self, name: &str, value: &str, seconds: Option<u32>) -> Option<HeaderValue> {
        let mut cookie = format!("{}={value}; Path=/; HttpOnly; SameSite=Strict", full(name, self.is_secure));
        if self.is_secure {
            cookie.push_str("; Secure");
        }
        if let Some(seconds) = seconds {
            let _ = write!(cookie, "; Max-Age={seconds}"); // into a string: this cannot fail
        }
        HeaderValue::from_str(&cookie).ok()
    }
}

/// Adds cookies to the headers of a response.
pub(super) fn add(headers: &mut HeaderMap, cookies: impl IntoIterator<Item = HeaderValue>) {
    for cookie in cookies {
        headers.append(SET_COOKIE, cookie);
    }
}

/// The full name of a cookie. A browser takes a cookie with this prefix from no other host, and only over TLS.
fn full(name: &str, is_secure: bool) -> String {
    format!("{}{name}", if is_secure { "__Host-" } else { "" })
}

fn drawn(entropy: &dyn Entropy) -> [u8; 32] {
    let mut secret = [0; 32];
    secret[..16].copy_from_slice(&entropy.wide_bits().to_be_bytes());
    secret[16..].copy_from_slice(&entropy.wide_bits().to_be_bytes());
    secret
}

fn value(headers: &HeaderMap, name: &str) -> Option<String> {
    let all = headers.get_all(COOKIE).into_iter().filter_map(|header| header.to_str().ok());
    let mut pairs = all.flat_map(|header| header.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find_map(|(key, value)| (key == name).then(|| value.to_owned()))
}

/// True if the request names this machine itself as its host, so that nobody between could read it.
fn is_loopback(request: &Parts) -> bool {
    let named = request.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = request.uri.host().or(named).unwrap_or_default();
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_address = name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    is_address || name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::SystemEntropy;

    fn cookies(host: &str, cookie: &str) -> Cookies {
        let request = http::Request::builder().header(HOST, host).header(COOKIE, cookie);
        Cookies::of(&request.body(()).unwrap().into_parts().0, &SystemEntropy, false)
    }

    #[test]
    fn only_a_loopback_host_gets_cookies_without_tls() {
        for host in ["127.0.0.1:4180", "127.3.2.1", "localhost:80", "[::1]:4180", "ui.localhost"] {
            assert!(is_plain(host), "{host}");
        }
        for host in ["", "example.com", "127.0.0.1.evil.com", "localhost.evil.com", "10.0.0.1", "[::2]"] {
            assert!(!is_plain(host), "{host}");
        }
    }

    #[test]
    fn behind_tls_no_host_gets_cookies_without_it() {
        let request = http::Request::builder().header(HOST, "127.0.0.1:4180").body(()).unwrap();
        let cookies = Cookies::of(&request.into_parts().0, &SystemEntropy, true);
        let set = cookies.end().unwrap();
        assert!(set.to_str().unwrap().starts_with("__Host-") && set.to_str().unwrap().contains("; Secure"));
    }

    fn is_plain(host: &str) -> bool {
        let set = cookies(host, "").end().unwrap();
        let set = set.to_str().unwrap();
        assert!(set.contains("; HttpOnly; SameSite=Strict"));
        !set.contains("; Secure") && !set.starts_with("__Host-")
    }

    #[test]
    fn a_form_is_bound_to_the_browser_and_to_the_session() {
        let visit = |fill: char| format!("counterfoil_visit={}", fill.to_string().repeat(64));
        let of =
            |visit: String, token: &str| cookies("localhost", &format!("{visit}; counterfoil_token={token}"));
        let own = of(visit('a'), "cft_1");
        assert!(own.is_own_form(&of(visit('a'), "cft_1").form_secret()));
        for other in [of(visit('b'), "cft_1"), of(visit('a'), "cft_2"), of(visit('a'), "")] {
            assert!(!own.is_own_form(&other.form_secret()));
        }
        assert!(!own.is_own_form("") && own.keep_visit().is_none());
        assert!(of("counterfoil_visit=zz".into(), "").keep_visit().is_some());
    }
}
