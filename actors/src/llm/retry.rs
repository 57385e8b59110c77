//! When a refused call is tried again, and how long to wait for it. Pure: time is an argument.

use std::time::Duration;

use clawnode_cluster::Backoff;
use clawnode_proto::Timestamp;
use rand::Rng;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;
use tokio::time::Instant;

use super::options::ProviderOptions;

/// The retries of one call.
#[derive(Debug)]
pub(super) struct Retry {
    backoff: Backoff,
    most: u32,
    done: u32,
    deadline: Instant,
}

impl Retry {
    pub(super) fn new(options: &ProviderOptions, deadline: Instant) -> Self {
        let backoff = Backoff::new(options.retry_first, options.retry_most);
        Self { backoff, most: options.retries, done: 0, deadline }
    }

    /// Which retry comes next and how long until then; `None` if there is none, because they are
    /// used up or the wait would pass the deadline. What the provider `asked` for wins. One that is to
    /// come `at_once` does not wait, and those after it wait as if it had.
    pub(super) fn next(
        &mut self,
        asked: Option<Duration>,
        at_once: bool,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Option<(u32, Duration)> {
        if self.done == self.most {
            return None;
        }
        let wait = asked.unwrap_or_else(|| {
            let wait = self.backoff.next(rng);
            if at_once { Duration::ZERO } else { wait }
        });
        if wait >= self.deadline.saturating_duration_since(now) {
            return None;
        }
        self.done += 1;
        Some((self.done, wait))
    }
}

/// What a refusal asks for: `retry-after-ms` (Anthropic and `OpenAI` send it), else `retry-after`
/// in seconds or as a date.
pub(super) fn asked_wait(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(ms) = text("retry-after-ms").and_then(|ms| ms.parse::<u64>().ok()) {
        return Some(Duration::from_millis(ms));
    }
    let after = text(RETRY_AFTER.as_str())?;
    if let Ok(seconds) = after.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(after).ok()?;
    let now = std::time::UNIX_EPOCH.checked_add(Duration::from_millis(now.0))?;
    // A date in the past asks for no wait at all.
    Some(date.duration_since(now).unwrap_or(Duration::ZERO))
}

/// What an error object asks for, in Google's words: a `RetryInfo` among its details.
pub(super) fn asked_in(error: &Value) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    let seconds = delay.trim().strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::llm::Wire;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn waits_grow_stay_bounded_and_end() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let now = Instant::now();
        for _ in 0..100 {
            let mut retry = Retry::new(&ProviderOptions::new(Wire::Openai), now + seconds(600));
            for (n, most_ms) in [(1, 500), (2, 1000), (3, 2000), (4, 4000)] {
                let (retry, wait) = retry.next(None, false, now, &mut rng).unwrap();
                assert_eq!(retry, n);
                assert!(wait <= Duration::from_millis(most_ms), "{wait:?} before retry {n}");
            }
            assert_eq!(retry.next(None, false, now, &mut rng), None, "4 retries, then no more");
        }
    }

    #[test]
    fn a_retry_at_once_shortens_no_later_wait() {
        let now = Instant::now();
        let mut most = Duration::ZERO;
        for seed in 0..100 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut retry = Retry::new(&ProviderOptions::new(Wire::Openai), now + seconds(600));
            assert_eq!(retry.next(None, true, now, &mut rng), Some((1, Duration::ZERO)));
            let (nth, wait) = retry.next(None, false, now, &mut rng).unwrap();
            assert_eq!(nth, 2);
            most = most.max(wait);
        }
        let second = Duration::from_millis(500)..=seconds(1);
        assert!(second.contains(&most), "{most:?} is not within the second wait");
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut retry = Retry::new(&ProviderOptions::new(Wire::Openai), now + seconds(600));
        assert_eq!(retry.next(Some(seconds(9)), true, now, &mut rng), Some((1, seconds(9))));
    }

    #[test]
    fn what_the_provider_asks_for_wins_within_the_deadline() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let now = Instant::now();
        let mut retry = Retry::new(&ProviderOptions::new(Wire::Openai), now + seconds(600));
        assert_eq!(retry.next(Some(seconds(90)), false, now, &mut rng), Some((1, seconds(90))));
        assert_eq!(retry.next(Some(seconds(600)), false, now, &mut rng), None, "past the deadline");
        assert_eq!(retry.next(Some(seconds(20)), false, now + seconds(580), &mut rng), None);
        assert_eq!(
            retry.next(Some(seconds(19)), false, now + seconds(580), &mut rng).unwrap().0,
            2
        );
    }

    #[test]
    fn every_form_of_the_header_is_read() {
        let now = Timestamp(784_111_777_000); // Sun, 06 Nov 1994 08:49:37 GMT
        for (name, value, wait) in [
            ("retry-after", "7", Some(seconds(7))),
            ("retry-after", "0.25", Some(Duration::from_millis(250))),
            ("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT", Some(seconds(3))),
            ("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT", Some(Duration::ZERO)),
            ("retry-after-ms", "30", Some(Duration::from_millis(30))),
            ("retry-after", "soon", None),
            ("retry-after", "-1", None),
            ("retry-after", "nan", None),
            ("retry-after", "1e300", None),
            ("date", "7", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert_eq!(asked_wait(&headers, now), wait, "{name}: {value}");
        }
    }
    #[test]
    fn a_wait_may_be_asked_for_in_the_body() {
        let info = "type.googleapis.com/google.rpc.RetryInfo";
        for (delay, wait) in [
            ("22s", Some(seconds(22))),
            ("0.5s", Some(Duration::from_millis(500))),
            ("22", None),
            ("-1s", None),
            ("soon", None),
        ] {
            let details = serde_json::json!([{"@type": "x"}, {"@type": info, "retryDelay": delay}]);
            let error = serde_json::json!({"code": 429, "details": details});
            assert_eq!(asked_in(&error), wait, "{delay}");
        }
        assert_eq!(asked_in(&serde_json::json!({"code": 429})), None);
    }
}
