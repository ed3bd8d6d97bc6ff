//! Bodies of requests and responses, read as a whole.

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt as _;

/// The error type of a service or a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The reason why a body was not read to its end.
pub(super) enum Cut {
    TooLong,
    Broken(BoxError),
}

/// A body of at most `max` bytes.
pub(super) async fn collect<B>(body: B, max: usize) -> Result<Bytes, Cut>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut body = std::pin::pin!(body);
    if body.size_hint().lower() > max as u64 {
        return Err(Cut::TooLong);
    }
    let mut collected = BytesMut::new();
    while let Some(frame) = body.as_mut().frame().await {
        let Ok(data) = frame.map_err(|error| Cut::Broken(error.into()))?.into_data() else { continue };
        if collected.len() + data.len() > max {
            return Err(Cut::TooLong);
        }
        collected.extend_from_slice(&data);
    }
    Ok(collected.freeze())
}
