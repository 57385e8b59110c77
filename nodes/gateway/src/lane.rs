//! The lane that a client chooses for a turn: a field of a message, or the header `Clawnode-Lane` of those requests
//! whose fields are of another API.

use axum::http::HeaderMap;
use clawnode_proto::{ErrorBody, lane::Lane};

use super::params::invalid;

/// The header.
pub(super) const LANE: &str = "clawnode-lane";

/// What a client may say.
const HINT: &str =
    "write `interactive` or `background`; without a lane, the agent's own lane applies";

/// The lane of a client's message, if a client may choose it.
pub(super) fn of_client(lane: Lane) -> Result<Lane, ErrorBody> {
    match lane {
        Lane::Interactive | Lane::Background => Ok(lane),
        Lane::System => {
            let what = "the lane `system` is for the cluster's own work";
            Err(invalid(what).hint(HINT))
        }
    }
}

/// The lane that a request's header names.
pub(super) fn header(headers: &HeaderMap) -> Result<Option<Lane>, ErrorBody> {
    let Some(value) = headers.get(LANE) else { return Ok(None) };
    let named = Lane::ALL.into_iter().find(|lane| value.as_bytes() == lane.as_str().as_bytes());
    let lane = named.ok_or_else(|| invalid("Clawnode-Lane: there is no such lane").hint(HINT))?;
    of_client(lane).map(Some)
}

#[cfg(test)]
mod tests {
    use clawnode_proto::ErrorCode;

    use super::*;

    #[test]
    fn a_client_chooses_two_of_the_lanes_and_nothing_else_passes() {
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(LANE, text.parse().unwrap());
            header(&headers).map_err(|error| error.code)
        };
        assert_eq!(read("background"), Ok(Some(Lane::Background)));
        assert_eq!(read("interactive"), Ok(Some(Lane::Interactive)));
        for refused in ["system", "Background", "", "background, interactive"] {
            assert_eq!(read(refused), Err(ErrorCode::InvalidParams), "{refused}");
        }
        assert_eq!(header(&HeaderMap::new()).unwrap(), None);
    }
}
