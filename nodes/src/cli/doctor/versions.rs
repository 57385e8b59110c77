//! S-15: whether what runs containers is known to let them out.
//!
//! The engine itself is asked for the versions of its parts: what is on this machine's path need not
//! be what it runs. A distribution may have mended a version without raising its number, so what is
//! known to be bad is a warning.

use std::fmt;

/// A version, as far as it is compared. A release is above its candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    parts: [u32; 3],
    released: bool,
}

/// Versions of one part that are known to be bad.
#[derive(Debug)]
struct Bad {
    /// As engines name it.
    part: &'static str,
    /// From this one on, candidates included.
    from: [u32; 3],
    /// Up to this one, which is mended.
    below: [u32; 3],
    /// What is wrong.
    what: &'static str,
}

const fn bad(part: &'static str, from: [u32; 3], below: [u32; 3], what: &'static str) -> Bad {
    Bad { part, from, below, what }
}

const LEAK: &str = "CVE-2024-21626 (a working directory outside the container)";
const MASKS: &str = "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881 (writes to the host's /proc)";
const USER: &str = "CVE-2024-40635 (a large user id becomes root)";
const FOLDERS: &str = "CVE-2024-25621 (its folders are open to other users of the host)";
const AUTH: &str = "CVE-2024-41110 (authorization plugins are bypassed)";
const FIREWALL: &str = "CVE-2025-54388 (a reload of firewalld opens ports of containers)";

/// What is known to be bad, from the advisories of the three projects.
const KNOWN: [Bad; 17] = [
    bad("runc", [0, 0, 0], [1, 1, 12], LEAK),
    bad("runc", [0, 0, 0], [1, 2, 8], MASKS),
    bad("runc", [1, 3, 0], [1, 3, 3], MASKS),
    // Its third candidate is repaired; it should not be in use.
    bad("runc", [1, 4, 0], [1, 4, 0], MASKS),
    bad("containerd", [0, 0, 0], [1, 6, 38], USER),
    bad("containerd", [1, 7, 0], [1, 7, 27], USER),
    bad("containerd", [2, 0, 0], [2, 0, 4], USER),
    bad("containerd", [0, 0, 0], [1, 7, 29], FOLDERS),
    bad("containerd", [2, 0, 0], [2, 0, 7], FOLDERS),
    bad("containerd", [2, 1, 0], [2, 1, 5], FOLDERS),
    bad(ENGINE, [0, 0, 0], [23, 0, 15], AUTH),
    bad(ENGINE, [24, 0, 0], [25, 0, 6], AUTH),
    bad(ENGINE, [26, 0, 0], [26, 0, 3], AUTH),
    bad(ENGINE, [26, 1, 0], [26, 1, 5], AUTH),
    bad(ENGINE, [27, 0, 0], [27, 0, 4], AUTH),
    bad(ENGINE, [27, 1, 0], [27, 1, 1], AUTH),
    bad(ENGINE, [28, 2, 0], [28, 3, 3], FIREWALL),
];

/// What an engine calls itself, that is, dockerd.
const ENGINE: &str = "Engine";
/// The parts that are judged, in the order in which they are shown.
const PARTS: [&str; 3] = [ENGINE, "containerd", "runc"];
/// The longest version of an engine that is shown.
const SHOWN_CHARS: usize = 40;

/// What an engine's versions mean.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VersionStatus {
    /// The versions, for people.
    pub(super) found: String,
    /// What is known to be bad, or cannot be read; empty if all is well.
    pub(super) bad: Vec<String>,
}

// === impl Version ===

impl Version {
    /// Of text such as `1.1.5+ds1`, `v2.0.0-rc.1`, `20.10.24`.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches('v');
        let end = text
            .find(|character: char| !character.is_ascii_digit() && character != '.')
            .unwrap_or(text.len());
        let (numbers, rest) = text.split_at(end);
        let mut parts = [0; 3];
        let mut given = numbers.split('.');
        for part in &mut parts {
            *part = match given.next() {
                Some(number) => number.parse().ok()?,
                None => 0,
            };
        }
        let candidate = ["-rc", "~rc", "-beta", "~beta", "-alpha", "~alpha"];
        Some(Self { parts, released: !candidate.iter().any(|mark| rest.starts_with(mark)) })
    }
}

impl Bad {
    fn has(&self, version: Version) -> bool {
        let from = Version { parts: self.from, released: false };
        let below = Version { parts: self.below, released: true };
        from <= version && version < below
    }
}

/// Judges what an engine says of itself: names of parts, and their versions.
pub(super) fn judge(said: &[(String, String)]) -> VersionStatus {
    let mut found = Vec::new();
    let mut wrong = Vec::new();
    for part in PARTS {
        let name = if part == ENGINE { "dockerd" } else { part };
        let Some((_, text)) = said.iter().find(|(known, _)| known == part) else {
            // Other engines have other parts; of those nothing is known.
            continue;
        };
        let shown: String = text.chars().take(SHOWN_CHARS).collect();
        found.push(format!("{name} {shown}"));
        match Version::parse(text) {
            None => wrong.push(format!("the version of {name}, `{shown}`, cannot be read")),
            Some(version) => wrong.extend(
                KNOWN
                    .iter()
                    .filter(|bad| bad.part == part && bad.has(version))
                    .map(|bad| format!("{name} before {}: {}", Dotted(bad.below), bad.what)),
            ),
        }
    }
    if found.is_empty() {
        wrong.push("the engine does not report its versions".to_owned());
    }
    VersionStatus { found: found.join(", "), bad: wrong }
}

struct Dotted([u32; 3]);

impl fmt::Display for Dotted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(parts: &[(&str, &str)]) -> Vec<String> {
        let said: Vec<_> =
            parts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        judge(&said).bad
    }

    /// S-15.
    #[test]
    fn s_15_versions_known_to_be_bad_are_told_from_others() {
        for (part, version) in [
            ("runc", "1.0.0-rc93"),
            ("runc", "1.1.5+ds1"),
            ("runc", "1.1.12"),
            ("runc", "1.2.7"),
            ("runc", "1.3.0-rc.1"),
            ("runc", "v1.3.2"),
            ("runc", "1.4.0-rc.2"),
            ("containerd", "1.6.20~ds1"),
            ("containerd", "v1.7.28"),
            ("containerd", "2.1.4"),
            ("containerd", "2.0.0~rc.4"),
            (ENGINE, "20.10.24+dfsg1"),
            (ENGINE, "24.0.9"),
            (ENGINE, "27.1.0"),
            (ENGINE, "28.3.2"),
        ] {
            assert!(!judged(&[(part, version)]).is_empty(), "{part} {version}");
        }
        for (part, version) in [
            ("runc", "1.2.8"),
            ("runc", "1.3.3"),
            ("runc", "1.4.0"),
            ("runc", "2.0"),
            ("containerd", "1.7.29"),
            ("containerd", "2.0.7-1"),
            ("containerd", "v2.2.0"),
            (ENGINE, "23.0.15"),
            (ENGINE, "25.0.6"),
            (ENGINE, "28.1.1"),
            (ENGINE, "29.0.0"),
            ("docker-init", "0.0.1"),
        ] {
            let others = [(ENGINE, "29.0.0"), (part, version)];
            let all = if part == ENGINE { &others[1..] } else { &others[..] };
            assert_eq!(judged(all), Vec::<String>::new(), "{part} {version}");
        }
        let both = judged(&[("runc", "1.1.5")]);
        assert!(
            both.len() == 2 && both[0].contains("runc before 1.1.12: CVE-2024-21626"),
            "{both:?}"
        );
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for version in ["", "unknown", "1.x.3", "99999999999.1.1", "N/A"] {
            assert!(judged(&[("runc", version)])[0].contains("cannot be read"), "{version}");
        }
        let long = "1".repeat(100_000);
        assert!(judged(&[("runc", &long)])[0].len() < 200);
        assert_eq!(judged(&[]).len(), 1);
    }
}
