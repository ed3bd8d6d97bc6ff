//! The style sheet, the script and the icon. Their names hold a digest of what they say, so a browser may keep them for ever.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use sha2::{Digest as _, Sha256};

use crate::page::alone::STYLE as STYLE_SHEET;
use crate::payload::hex;

/// A file of the dashboard.
pub(super) struct Asset {
    pub(super) name: String,
    media: &'static str,
    text: &'static str,
}

impl Asset {
    fn of(stem: &str, ending: &str, media: &'static str, text: &'static str) -> Self {
        let digest = hex(&Sha256::digest(text));
        Self { name: format!("{stem}.{}.{ending}", &digest[..16]), media, text }
    }
}

pub(super) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::of("app", "css", "text/css; charset=utf-8", STYLE_SHEET));
pub(super) static SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| Asset::of("app", "js", "text/javascript; charset=utf-8", include_str!("app.js")));
pub(super) static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::of("icon", "svg", "image/svg+xml", include_str!("icon.svg")));

/// The file of this name.
pub(super) fn asset(name: &str) -> Response {
    let found = [&STYLE, &SCRIPT, &ICON].into_iter().find(|asset| asset.name == name);
    let Some(asset) = found else { return StatusCode::NOT_FOUND.into_response() };
    let headers = [(CONTENT_TYPE, asset.media), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
    (headers, asset.text).into_response()
}
