//! A skill in one signed file.
//!
//! The file is a DSSE envelope (<https://github.com/secure-systems-lab/dsse>), whose payload is JSON with the files of
//! the skill. Nothing of a payload is read before a trusted key has verified all of it. Then each path is judged: none
//! leads out of the folder of the skill, and none is hidden.

use std::{collections::BTreeMap, fmt, path::Path, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clawnode_proto::{
    Digest,
    limits::{SKILL_BUNDLE_BYTES, SKILL_BYTES, SKILL_FILE_BYTES, SKILL_FILES},
};
use serde::{Deserialize, Serialize};

use super::{
    BundleKey, BundleSigner, SkillHead, format,
    skill_folder::{DEPTH, SKILL_FILE, opened, read_file, read_skill},
};

/// What the payload is. A signature covers it, so no text that was signed for other programs passes for a bundle.
const PAYLOAD_TYPE: &str = "application/vnd.clawnode.skill+json";
/// Signatures of one bundle.
const SIGNATURES: usize = 4;
/// Bytes of one name in a path.
const PART_BYTES: usize = 200;
/// Numbers of a version.
const VERSION_PARTS: usize = 4;
/// The pair of `metadata` that has the version.
const VERSION_KEY: &str = "version";

/// Why a bundle is not made, or not installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// It is no bundle, or what is in it is no skill.
    #[error("{0}")]
    Invalid(String),
    /// No trusted key has signed it, or it was changed since.
    #[error(
        "none of its signatures is by a key in `skills.trusted_keys`, or the file was changed after it was signed"
    )]
    Untrusted,
    /// What is there may not be replaced by it.
    #[error("{0}")]
    Conflict(String),
    /// A file or folder cannot be read or written.
    #[error("{0}")]
    Disk(String),
}

/// The version of a skill, 1 to 4 numbers: `1.10` is newer than `1.9`, and `1` is `1.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BundleVersion([u32; VERSION_PARTS]);

/// The envelope.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SignedBundle {
    /// In base64.
    payload: String,
    payload_type: String,
    signatures: Vec<BundleSignature>,
}

#[derive(Debug, Serialize, Deserialize)]
struct BundleSignature {
    /// The public key, as a hint for people. It decides nothing.
    #[serde(default)]
    keyid: String,
    /// In base64.
    sig: String,
}

/// The files of a skill by their paths, their content in base64.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BundlePayload {
    files: BTreeMap<String, String>,
}

/// A bundle that a trusted key has signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedBundle {
    /// What the frontmatter of its `SKILL.md` says.
    pub head: SkillHead,
    /// The name of the key in the configuration.
    pub signer: String,
    /// The key that verified it.
    pub key: BundleKey,
    /// The digest of its files, as [`pack`] writes a payload. A signer may write the same files in another way.
    pub digest: Digest,
    pub(super) version: BundleVersion,
    /// All files by their paths below the folder of the skill.
    pub(super) files: BTreeMap<String, Vec<u8>>,
}

impl VerifiedBundle {
    /// Its version: numbers with dots between them.
    pub fn version(&self) -> String {
        self.version.to_string()
    }
}

/// Packs the skill in this folder, and signs it. It has the files that a model can read.
///
/// # Errors
/// If the folder has no valid skill with a version, or the bundle is too large.
pub fn pack(folder: &Path, signer: &BundleSigner) -> Result<(SkillHead, Vec<u8>), BundleError> {
    let skill = read_skill(folder).map_err(|fault| {
        BundleError::Invalid(format!("`{}`: {}", fault.path.display(), fault.what))
    })?;
    version(&skill.head).map_err(BundleError::Invalid)?;
    let payload = payload(folder)?;
    let signature = signer.sign(&signed(&payload));
    let bundle = SignedBundle {
        payload: STANDARD.encode(&payload),
        payload_type: PAYLOAD_TYPE.to_owned(),
        signatures: vec![BundleSignature {
            keyid: signer.key().to_string(),
            sig: STANDARD.encode(signature),
        }],
    };
    let mut bytes = encoded(&bundle)?;
    bytes.push(b'\n');
    if bytes.len() > SKILL_BUNDLE_BYTES {
        return Err(too_large(bytes.len()));
    }
    Ok((skill.head, bytes))
}

/// The bundle in this file, if one of these keys has signed it.
///
/// # Errors
/// If it is no bundle, no key verifies it, or its content is no skill with a version.
pub fn verify(
    bytes: &[u8],
    trusted: &BTreeMap<String, BundleKey>,
) -> Result<VerifiedBundle, BundleError> {
    if bytes.len() > SKILL_BUNDLE_BYTES {
        return Err(too_large(bytes.len()));
    }
    let invalid = |why: &str| BundleError::Invalid(format!("it is not a bundle of a skill: {why}"));
    let bundle: SignedBundle =
        serde_json::from_slice(bytes).map_err(|error| invalid(&error.to_string()))?;
    if bundle.payload_type != PAYLOAD_TYPE {
        return Err(invalid("its `payloadType` is another one"));
    }
    if bundle.signatures.len() > SIGNATURES {
        return Err(invalid(&format!("it has more than {SIGNATURES} signatures")));
    }
    let payload = STANDARD.decode(&bundle.payload).map_err(|error| invalid(&error.to_string()))?;
    let message = signed(&payload);
    let signatures = bundle.signatures.iter().filter_map(|one| STANDARD.decode(&one.sig).ok());
    let signatures: Vec<Vec<u8>> = signatures.collect();
    let is_by = |key: &BundleKey| signatures.iter().any(|one| key.verifies(&message, one));
    let found = trusted.iter().find(|(_, key)| is_by(key));
    let Some((signer, key)) = found else { return Err(BundleError::Untrusted) };
    let files = files(&payload)?;
    let head = head(&files)?;
    let version = version(&head).map_err(BundleError::Invalid)?;
    let packed = files.iter().map(|(path, bytes)| (path.clone(), STANDARD.encode(bytes)));
    let digest = Digest::of(&encoded(&BundlePayload { files: packed.collect() })?);
    Ok(VerifiedBundle { head, signer: signer.clone(), key: *key, digest, version, files })
}

/// The payload of the skill in this folder: the same bytes for the same files.
pub(super) fn payload(folder: &Path) -> Result<Vec<u8>, BundleError> {
    let skill = read_skill(folder).map_err(|fault| {
        BundleError::Invalid(format!("`{}`: {}", fault.path.display(), fault.what))
    })?;
    let failed = |path: &str, error: std::io::Error| {
        BundleError::Disk(format!("`{}` cannot be read: {error}", folder.join(path).display()))
    };
    let dir = opened(folder).map_err(|error| failed("", error))?;
    let mut files = BTreeMap::new();
    let paths = skill.files.iter().map(|path| (path.as_str(), SKILL_FILE_BYTES));
    for (path, most) in paths.chain([(SKILL_FILE, SKILL_BYTES)]) {
        if let Some(why) = path_fault(path) {
            return Err(BundleError::Invalid(format!("the file `{path}` cannot be packed: {why}")));
        }
        let bytes = read_file(&dir, path, most).map_err(|error| failed(path, error))?;
        files.insert(path.to_owned(), STANDARD.encode(bytes));
    }
    encoded(&BundlePayload { files })
}

/// The version that a frontmatter states; why it states none.
pub(super) fn version(head: &SkillHead) -> Result<BundleVersion, String> {
    let stated = head.metadata.iter().find(|(key, _)| key == VERSION_KEY);
    let Some((_, text)) = stated else {
        return Err(format!(
            "the skill `{}` has no version: add `version: \"1\"` to `metadata` in its `{SKILL_FILE}`",
            head.name
        ));
    };
    text.parse().map_err(|why| format!("`metadata.version` of the skill `{}` {why}", head.name))
}

/// The bytes that a signature covers, as DSSE has them.
fn signed(payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {PAYLOAD_TYPE} {} ", PAYLOAD_TYPE.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

/// The files in a payload whose signature is good.
fn files(payload: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, BundleError> {
    let invalid = |why: String| BundleError::Invalid(format!("the bundle has no skill: {why}"));
    let BundlePayload { files: packed } =
        serde_json::from_slice(payload).map_err(|error| invalid(error.to_string()))?;
    if packed.len() > SKILL_FILES + 1 {
        return Err(invalid(format!("it has more than {SKILL_FILES} files beside `{SKILL_FILE}`")));
    }
    let mut files = BTreeMap::new();
    for (path, content) in &packed {
        let shown: String = path.chars().take(PART_BYTES).collect();
        if let Some(why) = path_fault(path) {
            return Err(invalid(format!("the path {shown:?} {why}")));
        }
        let mut above = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
        if above.any(|folder| packed.contains_key(folder)) {
            return Err(invalid(format!("the path {shown:?} is below a file")));
        }
        let bytes = STANDARD.decode(content).map_err(|error| invalid(error.to_string()))?;
        let most = if path == SKILL_FILE { SKILL_BYTES } else { SKILL_FILE_BYTES };
        if bytes.len() > most {
            return Err(invalid(format!("the file {shown:?} has more than {most} bytes")));
        }
        files.insert(path.clone(), bytes);
    }
    Ok(files)
}

/// What the `SKILL.md` among these files says.
fn head(files: &BTreeMap<String, Vec<u8>>) -> Result<SkillHead, BundleError> {
    let invalid = |why: String| BundleError::Invalid(format!("the bundle has no skill: {why}"));
    let bytes = files.get(SKILL_FILE).ok_or_else(|| invalid(format!("no `{SKILL_FILE}`")))?;
    let text = std::str::from_utf8(bytes).map_err(|error| invalid(error.to_string()))?;
    if text.contains('\0') {
        return Err(invalid(format!("`{SKILL_FILE}` has zero bytes in it")));
    }
    // A name that it takes is the name of a folder and nothing else.
    format::parse(text).map(|(head, _)| head).map_err(invalid)
}

/// Why a file of a skill may not have this path.
fn path_fault(path: &str) -> Option<&'static str> {
    let parts: Vec<&str> = path.split('/').collect();
    if parts.len() > usize::try_from(DEPTH).unwrap_or(usize::MAX) {
        Some("is in too many folders")
    } else if parts.iter().any(|part| part.is_empty() || part.starts_with('.')) {
        Some("leads out of the skill, or is hidden")
    } else if parts.iter().any(|part| part.len() > PART_BYTES) {
        Some("is too long")
    } else if path.contains('\\') || path.chars().any(char::is_control) {
        Some("has characters that a file of a skill may not have")
    } else {
        None
    }
}

fn encoded(value: &impl Serialize) -> Result<Vec<u8>, BundleError> {
    serde_json::to_vec(value).map_err(|error| BundleError::Invalid(error.to_string()))
}

fn too_large(bytes: usize) -> BundleError {
    BundleError::Invalid(format!("the bundle has {bytes} bytes, at most {SKILL_BUNDLE_BYTES}"))
}

// === impl BundleVersion ===

impl FromStr for BundleVersion {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const FAULT: &str = "is no version: write 1 to 4 numbers with dots between them";
        let mut numbers = [0; VERSION_PARTS];
        let parts: Vec<&str> = text.split('.').collect();
        if parts.len() > VERSION_PARTS {
            return Err(FAULT);
        }
        for (number, part) in numbers.iter_mut().zip(parts) {
            // `parse` would take a sign, too.
            if !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(FAULT);
            }
            *number = part.parse().map_err(|_invalid| FAULT)?;
        }
        Ok(Self(numbers))
    }
}

impl fmt::Display for BundleVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.0.iter().rposition(|number| *number > 0).unwrap_or_default();
        let parts: Vec<String> = self.0.iter().take(last + 1).map(u32::to_string).collect();
        f.write_str(&parts.join("."))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn signer() -> BundleSigner {
        BundleSigner::from_pem(BundleSigner::generate().unwrap().as_bytes()).unwrap()
    }

    fn trusted(signer: &BundleSigner) -> BTreeMap<String, BundleKey> {
        BTreeMap::from([("team".to_owned(), signer.key())])
    }

    fn text(version: &str) -> String {
        format!("---\nname: ship\ndescription: Ships.\nmetadata:\n  version: {version}\n---\nGo.\n")
    }

    /// A bundle with these files, whatever they are.
    fn forged(signer: &BundleSigner, files: &[(&str, &str)]) -> Vec<u8> {
        let packed = files.iter().map(|(path, text)| ((*path).to_owned(), STANDARD.encode(text)));
        sealed(signer, &encoded(&BundlePayload { files: packed.collect() }).unwrap())
    }

    fn sealed(signer: &BundleSigner, payload: &[u8]) -> Vec<u8> {
        let sig = STANDARD.encode(signer.sign(&signed(payload)));
        let signatures = vec![BundleSignature { keyid: String::new(), sig }];
        let payload = STANDARD.encode(payload);
        encoded(&SignedBundle { payload, payload_type: PAYLOAD_TYPE.to_owned(), signatures })
            .unwrap()
    }

    #[test]
    fn what_was_packed_is_what_is_verified() {
        let home = tempfile::tempdir().unwrap();
        let (folder, signer) = (home.path().join("ship"), signer());
        fs::create_dir_all(folder.join("references")).unwrap();
        fs::write(folder.join(SKILL_FILE), text("1.2")).unwrap();
        fs::write(folder.join("references/a.bin"), [0, 255]).unwrap();
        fs::write(folder.join(".secret"), "x").unwrap();
        let (head, bytes) = pack(&folder, &signer).unwrap();
        assert_eq!(head.name, "ship");
        let bundle = verify(&bytes, &trusted(&signer)).unwrap();
        assert_eq!((bundle.head, bundle.signer.as_str()), (head, "team"));
        assert_eq!(bundle.version.to_string(), "1.2");
        assert_eq!(bundle.files.keys().collect::<Vec<_>>(), [SKILL_FILE, "references/a.bin"]);
        assert_eq!(bundle.files["references/a.bin"], [0, 255]);
        assert_eq!(bundle.digest, Digest::of(&payload(&folder).unwrap()));
        fs::write(folder.join(SKILL_FILE), text("~")).unwrap();
        let refused = pack(&folder, &signer).unwrap_err().to_string();
        assert!(refused.contains("1 to 4 numbers"), "{refused}");
    }

    /// Else a skill would count as changed from the moment that it was installed.
    #[test]
    fn the_digest_is_of_the_files_however_a_signer_writes_them() {
        let signer = signer();
        let plain = forged(&signer, &[(SKILL_FILE, &text("1")), ("a.md", "a")]);
        let plain = verify(&plain, &trusted(&signer)).unwrap();
        let encode = |path: &str| STANDARD.encode(&plain.files[path]);
        let other = format!(
            "{{ \"files\": {{ \"a.md\": \"{}\",\n\"SKILL.md\": \"{}\" }} }}",
            encode("a.md"),
            encode(SKILL_FILE)
        );
        let other = verify(&sealed(&signer, other.as_bytes()), &trusted(&signer)).unwrap();
        assert_eq!(other, plain);
    }

    #[test]
    fn a_signature_of_another_key_or_text_is_refused() {
        let (signer, other) = (signer(), signer());
        let good = forged(&signer, &[(SKILL_FILE, &text("1"))]);
        verify(&good, &trusted(&signer)).unwrap();
        assert_eq!(verify(&good, &trusted(&other)), Err(BundleError::Untrusted));
        assert_eq!(verify(&good, &BTreeMap::new()), Err(BundleError::Untrusted));
        let changed = |change: &dyn Fn(&mut SignedBundle)| {
            let mut bundle: SignedBundle = serde_json::from_slice(&good).unwrap();
            change(&mut bundle);
            verify(&encoded(&bundle).unwrap(), &trusted(&signer)).unwrap_err()
        };
        let swap = |bundle: &mut SignedBundle| {
            let payload = forged(&other, &[(SKILL_FILE, &text("2"))]);
            let payload: SignedBundle = serde_json::from_slice(&payload).unwrap();
            bundle.payload = payload.payload;
        };
        assert_eq!(changed(&swap), BundleError::Untrusted);
        assert_eq!(changed(&|bundle| bundle.signatures.clear()), BundleError::Untrusted);
        let claims = |bundle: &mut SignedBundle| {
            bundle.signatures[0].keyid = signer.key().to_string();
            bundle.signatures[0].sig = STANDARD.encode([0; 64]);
        };
        assert_eq!(changed(&claims), BundleError::Untrusted);
        let typed = changed(&|bundle| bundle.payload_type = "text/plain".to_owned());
        assert!(typed.to_string().contains("payloadType"), "{typed}");
        // A signature of the bare payload is for another program.
        let bare = |bundle: &mut SignedBundle| {
            let payload = STANDARD.decode(&bundle.payload).unwrap();
            bundle.signatures[0].sig = STANDARD.encode(signer.sign(&payload));
        };
        assert_eq!(changed(&bare), BundleError::Untrusted);
        assert!(matches!(verify(b"PK\x03\x04", &trusted(&signer)), Err(BundleError::Invalid(_))));
    }

    /// Also a trusted key signs nothing that leads out of the folder of its skill.
    #[test]
    fn a_path_that_leads_out_is_refused() {
        let signer = signer();
        let skill = text("1");
        for path in [
            "../evil/SKILL.md",
            "references/../../evil",
            "/etc/passwd",
            "a//b",
            "a/",
            "",
            ".",
            "./a",
            ".bundle.json",
            "a/.hidden",
            "..\\evil",
            "a\0b",
            "a\nb",
            "a/b/c/d/e",
            "SKILL.md/a",
        ] {
            let bytes = forged(&signer, &[(SKILL_FILE, &skill), (path, "x")]);
            let refused = verify(&bytes, &trusted(&signer)).unwrap_err().to_string();
            assert!(refused.contains("the path"), "{path:?}: {refused}");
        }
        for (files, why) in [
            (vec![("a.md", skill.as_str())], "no `SKILL.md`"),
            (vec![(SKILL_FILE, "x")], "does not begin"),
            (vec![(SKILL_FILE, "---\nname: ../x\ndescription: d\n---\nx")], "a to z"),
            (vec![(SKILL_FILE, "---\nname: x\ndescription: d\n---\nx")], "no version"),
        ] {
            let refused = verify(&forged(&signer, &files), &trusted(&signer)).unwrap_err();
            assert!(refused.to_string().contains(why), "{refused}");
        }
        let large = "x".repeat(SKILL_FILE_BYTES + 1);
        let bytes = forged(&signer, &[(SKILL_FILE, &skill), ("large.md", &large)]);
        let refused = verify(&bytes, &trusted(&signer)).unwrap_err().to_string();
        assert!(refused.contains("more than"), "{refused}");
        let large = vec![b' '; SKILL_BUNDLE_BYTES + 1];
        assert!(verify(&large, &trusted(&signer)).is_err());
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let version = |text: &str| text.parse::<BundleVersion>().unwrap();
        assert!(version("1.10") > version("1.9") && version("2") > version("1.9.9.9"));
        assert_eq!(version("1"), version("1.0.0"));
        assert_eq!(
            (version("1.0").to_string(), version("0").to_string()),
            ("1".into(), "0".into())
        );
        for text in ["", "a", "1.", "+1", "1.2.3.4.5", "-1", "1..2", "4294967296", "1.0-rc1"] {
            assert!(text.parse::<BundleVersion>().is_err(), "{text}");
        }
    }
}
