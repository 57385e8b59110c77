//! No dependency has a version that an advisory of `RustSec` is about. The list of advisories is
//! `fixtures/advisories.jsonl`; `python/advisories.py` writes it again.

use std::{collections::BTreeMap, path::Path};

use semver::{Version, VersionReq};
use serde::Deserialize;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Advisories that are known and do no harm here: which one, why, and what would end it.
const WAIVED: [(&str, &str); 4] = [
    (
        "RUSTSEC-2024-0384",
        "`instant` is unmaintained; sled 0.34 needs it, and the index is rebuildable",
    ),
    (
        "RUSTSEC-2024-0436",
        "`paste` is unmaintained; candle needs it for its macros while it is compiled, in builds with the feature \
         `embed-local` alone",
    ),
    (
        "RUSTSEC-2025-0057",
        "`fxhash` is unmaintained; sled 0.34 needs it, and hashes nothing from outside",
    ),
    (
        "RUSTSEC-2026-0570",
        "48.0.9 cannot be had yet, and 49 needs Rust 1.96: a plugin that an operator installed may end \
         the node, in builds with the feature `wasm` alone",
    ),
];

#[derive(Debug, Deserialize)]
struct Advisory {
    id: String,
    package: String,
    kind: String,
    patched: Vec<String>,
    unaffected: Vec<String>,
    title: String,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: Version,
    source: Option<String>,
}

impl Advisory {
    /// Whether it is about this version; also where what it says of versions cannot be read.
    fn is_about(&self, version: &Version) -> bool {
        let takes =
            |text: &String| VersionReq::parse(text).is_ok_and(|wanted| wanted.matches(version));
        !self.patched.iter().any(takes) && !self.unaffected.iter().any(takes)
    }
}

fn read(path: &str) -> std::io::Result<String> {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
}

fn advisories() -> Result<Vec<Advisory>> {
    let text = read("fixtures/advisories.jsonl")?;
    Ok(text.lines().skip(1).map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// What of these packages is affected, as lines.
fn affected(packages: &[Package], advisories: &[Advisory]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for package in packages.iter().filter(|package| package.source.is_some()) {
        for advisory in advisories.iter().filter(|advisory| advisory.package == package.name) {
            if advisory.is_about(&package.version) {
                let Package { name, version, .. } = package;
                let line = format!(
                    "{name} {version}: {} ({}): {}",
                    advisory.id, advisory.kind, advisory.title
                );
                found.insert(advisory.id.clone(), line);
            }
        }
    }
    found
}

#[test]
fn no_dependency_has_a_known_hole() -> Result {
    let lock: Lock = toml::from_str(&read("../Cargo.lock")?)?;
    let all = advisories()?;
    assert!(all.len() > 1_000 && lock.package.len() > 100, "nothing was looked at");
    let mut found = affected(&lock.package, &all);
    for (id, why) in WAIVED {
        assert!(
            found.remove(id).is_some(),
            "{id} is waived ({why}), and concerns nothing any more"
        );
    }
    let found: Vec<String> = found.into_values().collect();
    assert!(
        found.is_empty(),
        "update these (`cargo update -p NAME`), or waive them with a reason:\n{}",
        found.join("\n")
    );
    Ok(())
}

#[test]
fn the_check_finds_what_is_affected() -> Result {
    let package = |name: &str, version: &str| Package {
        name: name.to_owned(),
        version: version.parse().unwrap(),
        source: Some("registry".to_owned()),
    };
    let all = advisories()?;
    for (name, version, id, is_affected) in [
        ("wasmtime", "48.0.8", "RUSTSEC-2026-0570", true),
        ("wasmtime", "48.0.9", "RUSTSEC-2026-0570", false),
        ("tar", "0.4.44", "RUSTSEC-2026-0067", true),
        ("rustls", "0.23.17", "RUSTSEC-2024-0399", true),
        ("rustls", "0.23.12", "RUSTSEC-2024-0399", false),
        ("hyper", "0.9.18", "RUSTSEC-2017-0002", false),
    ] {
        let found = affected(&[package(name, version)], &all);
        assert_eq!(found.contains_key(id), is_affected, "{name} {version}: {found:?}");
    }
    Ok(())
}
