//! `skills key`, `pack` and `install`: skills in one signed file.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use clap::Args;
use clawnode_proto::limits::SKILL_BUNDLE_BYTES;
use clawnode_tool::skill::{BundleError, BundleSigner, Installed, pack, verify};
use serde_json::json;

use super::{command_context::CliContext, output::clean};
use crate::{
    failure::{Exit, Failure},
    files,
    node::skills,
};

/// Bytes of a file with a key.
const KEY_BYTES: u64 = 16 << 10;
/// The mode of a bundle: it is for others.
const BUNDLE_MODE: u32 = 0o644;

/// What `skills key` is given.
#[derive(Debug, Args)]
pub(super) struct SkillKeyArgs {
    /// The file for the private key, which must not exist
    pub file: PathBuf,
}

/// What `skills pack` is given.
#[derive(Debug, Args)]
pub(super) struct SkillPackArgs {
    /// The skill's folder. Its `SKILL.md` has `version` in `metadata`
    pub folder: PathBuf,
    /// The file with the private key (Ed25519, PKCS #8, PEM)
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// The file to write (NAME.skill in this directory)
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long)]
    pub replace: bool,
}

/// What `skills install` is given.
#[derive(Debug, Args)]
pub(super) struct SkillInstallArgs {
    /// The bundle
    pub file: PathBuf,
    /// Also replace a skill that came from no bundle, or was changed since
    #[arg(long)]
    pub replace: bool,
}

pub(super) fn key(args: &SkillKeyArgs, context: &CliContext) -> Result<Exit, Failure> {
    let shown = args.file.display();
    let failed = |what: String| Failure::new(Exit::Failed, "file_unusable", what);
    let pem = BundleSigner::generate().map_err(failed)?;
    let signer = BundleSigner::from_pem(pem.as_bytes()).map_err(failed)?;
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(files::PRIVATE).open(&args.file);
    let written = file.and_then(|mut file| {
        file.write_all(pem.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| {
        failed(format!("cannot write the private key to `{shown}`: {error}"))
            .hint("name a file that is not there yet, in a directory that you may write to")
    })?;
    let public = signer.key().to_string();
    context.out.document(&json!({ "file": args.file, "public_key": public }), |_| {
        format!(
            "the private key is in `{}`: keep it secret\n\
             nodes that install your bundles need this in their configuration:\n\n\
             [skills.trusted_keys]\nNAME = \"{public}\"",
            clean(&shown.to_string())
        )
    })?;
    Ok(Exit::Ok)
}

pub(super) fn package(args: &SkillPackArgs, context: &CliContext) -> Result<Exit, Failure> {
    let unusable = |what: String| {
        let what = format!("`{}`: {what}", args.key.display());
        Failure::new(Exit::Failed, "file_unusable", what)
            .hint("make a key with `clawnode skills key FILE`")
    };
    let mut pem = Vec::new();
    let read = File::open(&args.key).and_then(|file| file.take(KEY_BYTES).read_to_end(&mut pem));
    read.map_err(|error| unusable(error.to_string()))?;
    let signer = BundleSigner::from_pem(&pem).map_err(unusable)?;
    if is_inside(&args.key, &args.folder) {
        let what =
            "it is in the folder that is packed, so that the bundle would have it".to_owned();
        return Err(unusable(what).hint("move the private key out of the skill"));
    }
    let (head, bytes) = pack(&args.folder, &signer).map_err(|error| failure(&error))?;
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}.skill", head.name)));
    if !args.replace && out.symlink_metadata().is_ok() {
        let what = format!("`{}` is there already", out.display());
        return Err(Failure::new(Exit::Failed, "local_file", what)
            .hint("name another file with `--out`, or add `--replace`"));
    }
    let text = String::from_utf8_lossy(&bytes);
    files::replace(&out, &text, BUNDLE_MODE).map_err(|error| {
        let what = format!("cannot write the bundle to `{}`: {error}", out.display());
        Failure::new(Exit::Failed, "local_file", what).hint("name another file with `--out`")
    })?;
    let document = json!({
        "name": head.name,
        "file": out,
        "bytes": bytes.len(),
        "public_key": signer.key().to_string(),
    });
    context.out.document(&document, |_| {
        let out = clean(&out.display().to_string());
        format!("`{}` is packed into `{out}`, signed by {}", head.name, signer.key())
    })?;
    Ok(Exit::Ok)
}

fn is_inside(file: &Path, folder: &Path) -> bool {
    let paths = (file.canonicalize(), folder.canonicalize());
    matches!(paths, (Ok(file), Ok(folder)) if file.starts_with(&folder))
}

pub(super) fn install(args: &SkillInstallArgs, context: &CliContext) -> Result<Exit, Failure> {
    let bytes = read(&args.file)?;
    let trusted = context.loaded.config.skills.keys();
    let places = skills::places(&context.loaded);
    let bundle = verify(&bytes, &trusted).map_err(|error| failure(&error))?;
    let installed = places.install(&bundle, args.replace).map_err(|error| failure(&error))?;
    let done = match installed {
        Installed::New => "installed",
        Installed::Replaced => "replaced",
        Installed::Unchanged => "unchanged",
    };
    let document = json!({
        "name": bundle.head.name,
        "version": bundle.version(),
        "signer": bundle.signer,
        "done": done,
        "folder": places.write,
    });
    context.out.document(&document, |_| {
        let signer = clean(&bundle.signer);
        let (name, version) = (&bundle.head.name, bundle.version());
        match installed {
            Installed::New => format!("`{name}` {version}, signed by {signer}, is installed"),
            Installed::Replaced => {
                format!(
                    "`{name}` {version}, signed by {signer}, has replaced the skill that was there"
                )
            }
            Installed::Unchanged => format!("`{name}` {version} is there already"),
        }
    })?;
    Ok(Exit::Ok)
}

/// A file as far as a bundle may go, and one byte more.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let most = SKILL_BUNDLE_BYTES as u64 + 1;
    let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    read.map_err(|error| {
        let what = format!("cannot read the bundle `{}`: {error}", path.display());
        Failure::new(Exit::Failed, "local_file", what).hint("correct the path")
    })?;
    Ok(bytes)
}

fn failure(error: &BundleError) -> Failure {
    let what = error.to_string();
    match error {
        BundleError::Invalid(_) => Failure::new(Exit::Failed, "bundle_invalid", what)
            .hint("correct the skill, then pack it with `clawnode skills pack`"),
        BundleError::Untrusted => Failure::new(Exit::Refused, "bundle_untrusted", what).hint(
            "if you trust who made it, add their public key to `[skills.trusted_keys]`; else do not use it",
        ),
        BundleError::Conflict(_) => Failure::new(Exit::Failed, "bundle_conflict", what)
            .hint("`clawnode skills list` shows the skills of this machine"),
        BundleError::Disk(_) => Failure::new(Exit::Failed, "local_file", what)
            .hint("make the folder writable for this user"),
    }
}
