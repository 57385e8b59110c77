//! Compiled code on disk is believed only if this cache wrote it.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use clawnode_wasm::{Cache, Plugin, PluginGrants, WasmBug, WasmEngine, text::ECHO};
use tempfile::TempDir;

use crate::{LONG, call, calls};

const OTHER: &str = "(call $ok (i32.const 1024) (i32.const 3))";

fn open(dir: &TempDir) -> Cache {
    Cache::open(&dir.path().join("plugins")).unwrap()
}

/// What the plugin says, loaded by a new engine with this cache.
fn says(cache: Cache, planted: WasmBug, wasm: &[u8]) -> String {
    let engine = WasmEngine::with_bug(Some(cache), planted).unwrap();
    let plugin = Plugin::load(&engine, wasm, PluginGrants::default()).unwrap();
    call(&plugin, "mine", LONG).unwrap()
}

/// The compiled files, in no order.
fn files(dir: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.path().join("plugins")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "cwasm")).collect()
}

#[test]
fn what_was_compiled_is_used_again_and_is_its_owners_alone() {
    let dir = tempfile::tempdir().unwrap();
    let wasm = calls(ECHO);
    assert_eq!(says(open(&dir), WasmBug::None, &wasm), "mine");
    let [file] = &files(&dir)[..] else { panic!("{:?}", files(&dir)) };
    let written = fs::metadata(file).unwrap();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(file.clone()), 0o600);
    assert_eq!(mode(dir.path().join("plugins/key")), 0o600);
    assert_eq!(mode(dir.path().join("plugins")), 0o700);
    assert_eq!(says(open(&dir), WasmBug::None, &wasm), "mine");
    let again = fs::metadata(file).unwrap();
    assert_eq!(again.modified().unwrap(), written.modified().unwrap(), "not written again");
}

#[test]
fn what_is_damaged_or_foreign_is_compiled_again() {
    let dir = tempfile::tempdir().unwrap();
    let wasm = calls(ECHO);
    assert_eq!(says(open(&dir), WasmBug::None, &wasm), "mine");
    let file = files(&dir).remove(0);
    let good = fs::read(&file).unwrap();
    // Code of another cache, whose key is another, under the name of this.
    let other = tempfile::tempdir().unwrap();
    assert_eq!(says(open(&other), WasmBug::None, &calls(OTHER)), "run");
    let foreign = fs::read(files(&other).remove(0)).unwrap();
    // Code of this cache under another's name.
    assert_eq!(says(open(&dir), WasmBug::None, &calls(OTHER)), "run");
    let swapped = files(&dir).into_iter().find(|path| *path != file).unwrap();
    let swapped = fs::read(swapped).unwrap();
    let mut flipped = good.clone();
    let middle = good.len() / 2;
    flipped[middle] ^= 1;
    for (name, bytes) in [
        ("nothing", &[][..]),
        ("a part", &good[..good.len() - 1]),
        ("a bit", &flipped),
        ("another's", &foreign),
        ("another plugin's", &swapped),
    ] {
        fs::write(&file, bytes).unwrap();
        assert_eq!(says(open(&dir), WasmBug::None, &wasm), "mine", "{name}");
        assert_eq!(fs::read(&file).unwrap().len(), good.len(), "{name}: written again");
    }
    // A cache that believes everything runs what another wrote.
    fs::write(&file, &foreign).unwrap();
    assert_eq!(says(open(&dir), WasmBug::Credulous, &wasm), "run", "the planted bug is found");
}

#[test]
fn a_key_that_is_none_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let wasm = calls(ECHO);
    assert_eq!(says(open(&dir), WasmBug::None, &wasm), "mine");
    let key = dir.path().join("plugins/key");
    fs::write(&key, "short").unwrap();
    assert_eq!(says(open(&dir), WasmBug::None, &wasm), "mine");
    assert_eq!(fs::read(&key).unwrap().len(), 32);
}

#[test]
fn what_nobody_uses_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(says(open(&dir), WasmBug::None, &calls(OTHER)), "run");
    let engine = WasmEngine::new(Some(open(&dir))).unwrap();
    Plugin::load(&engine, &calls(ECHO), PluginGrants::default()).unwrap();
    assert_eq!(files(&dir).len(), 2);
    engine.cache().unwrap().sweep().unwrap();
    assert_eq!(files(&dir).len(), 1);
    let again = Plugin::load(&engine, &calls(ECHO), PluginGrants::default()).unwrap();
    assert_eq!(call(&again, "mine", LONG).unwrap(), "mine");
}
