//! What every page knows: under which path the dashboard is mounted, who looks at it, which tenant is shown, and when.

use http::Uri;

use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::rim::api::{Caller, Role, TenantScope};

/// The surroundings of a page.
#[derive(Clone)]
pub(super) struct Site {
    /// The path under which the dashboard is mounted; empty at the root.
    pub(super) base: String,
    /// The path of the page, behind the base.
    pub(super) path: String,
    /// Absent on the page to sign in.
    pub(super) caller: Option<Caller>,
    pub(super) tenant: Option<Tenant>,
    /// The secret that each form carries.
    pub(super) form_secret: String,
    pub(super) now: Timestamp,
    /// The code of what the last form has done.
    pub(super) told: Option<String>,
    /// What the person has typed into the form that was sent.
    pub(super) typed: Vec<String>,
}

impl Default for Site {
    fn default() -> Self {
        let (base, path, form_secret) = <(String, String, String)>::default();
        let (now, typed) = (Timestamp::MIN, Vec::new());
        Self { base, path, caller: None, tenant: None, form_secret, now, told: None, typed }
    }
}

impl Site {
    /// The path under which the dashboard is mounted: what the server has stripped off the path of a request.
    pub(super) fn base(asked: &Uri, inner: &Uri) -> String {
        let inner = inner.path().trim_end_matches('/');
        let asked = asked.path().trim_end_matches('/');
        asked.strip_suffix(inner).unwrap_or_default().to_owned()
    }

    /// The address of a page of the dashboard.
    pub(super) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// The address of a page of the tenant, by a path without reserved characters, or with escaped ones.
    pub(super) fn of_tenant(&self, path: &str) -> String {
        let tenant = self.tenant.as_ref().map_or("", Tenant::as_str);
        format!("{}/t/{}{path}", self.base, escaped(tenant))
    }

    /// The address of this page, as a form posts to it.
    pub(super) fn here(&self) -> String {
        self.at(&self.path)
    }

    pub(super) fn allows(&self, role: Role) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.role.allows(role))
    }

    /// True if the caller may see all tenants.
    pub(super) fn sees_all(&self) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.tenants == TenantScope::All)
    }
}

/// A text as one part of a path, or as a value in a query.
pub(super) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_~.".contains(&byte) {
            shown.push(char::from(byte));
        } else {
            shown.push('%');
            shown.push_str(&crate::payload::hex(&[byte]).to_uppercase());
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_is_what_the_server_has_stripped() {
        for (asked, inner, base) in [
            ("/ui", "/", "/ui"),
            ("/ui/", "/", "/ui"),
            ("/", "/", ""),
            ("/t/acme", "/t/acme", ""),
            ("/a/ui/t/acme/runs?x=1", "/t/acme/runs?x=1", "/a/ui"),
        ] {
            assert_eq!(Site::base(&asked.parse().unwrap(), &inner.parse().unwrap()), base, "{asked}");
        }
    }

    #[test]
    fn a_part_of_a_path_cannot_become_two() {
        assert_eq!(escaped("a/b?c#d é\""), "a%2Fb%3Fc%23d%20%C3%A9%22");
    }
}
