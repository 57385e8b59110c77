//! What loads.

use clawnode_wasm::{
    CallError, EffectClass, LoadError, Plugin, PluginGrants, Risk, WasmEngine, limits,
    text::{ECHO, PluginText},
};

use crate::{LONG, call, calls, engine, load};

fn refused(engine: &WasmEngine, wasm: &[u8]) -> LoadError {
    Plugin::load(engine, wasm, PluginGrants::default()).unwrap_err()
}

#[test]
fn a_plugin_says_what_it_has_and_does_it() {
    let text = PluginText { name: "say", class: 2, risk: 1, ..PluginText::default() };
    let plugin = load(&engine(), &text.bytes().unwrap());
    let [tool] = plugin.tools() else { panic!("{plugin:?}") };
    assert_eq!((tool.name.as_str(), tool.description.as_str()), ("say", "says what it was sent"));
    assert_eq!(tool.input_schema, r#"{"type":"object"}"#);
    assert_eq!((tool.class, tool.risk), (EffectClass::Once, Risk::Write));
    assert_eq!(call(&plugin, r#"{"a":"é"}"#, LONG).unwrap(), r#"{"a":"é"}"#);
    // Larger than its memory is at first.
    let long = "x".repeat(1 << 20);
    assert_eq!(call(&plugin, &long, LONG).unwrap(), long);
    let failing = calls("(call $err (local.get $key) (local.get $key_len))");
    let error = call(&load(&engine(), &failing), "", LONG).unwrap_err();
    assert_eq!(error, CallError::Tool("job_7".to_owned()));
}

#[test]
fn what_is_no_component_is_refused() {
    let engine = engine();
    let whole = calls(ECHO);
    let module = wat::parse_str("(module)").unwrap();
    let text = PluginText::default().wat();
    let mut damaged = whole.clone();
    damaged.truncate(whole.len() / 2);
    for (name, bytes) in [
        ("nothing", &[][..]),
        ("noise", b"MZ\x90\0 this is no component"),
        ("a core module", &module),
        ("text", text.as_bytes()),
        ("half", &damaged),
        ("a head", &whole[..8]),
    ] {
        let error = refused(&engine, bytes);
        let expected = if name == "a head" {
            // An empty component is one, and no plugin.
            matches!(error, LoadError::World(_))
        } else {
            matches!(error, LoadError::Invalid(_))
        };
        assert!(expected, "{name}: {error:?}");
    }
    let large = vec![0; limits::COMPONENT_BYTES + 1];
    assert!(matches!(refused(&engine, &large), LoadError::TooLarge(_)));
}

#[test]
fn every_byte_that_is_wrong_is_an_error_or_a_plugin() {
    let engine = engine();
    let whole = calls(ECHO);
    let mut refusals = 0;
    for at in (8..whole.len()).step_by(whole.len() / 150) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        refusals += u32::from(Plugin::load(&engine, &damaged, PluginGrants::default()).is_err());
    }
    assert!(refusals > 50, "{refusals}");
    assert!(Plugin::load(&engine, &whole, PluginGrants::default()).is_ok(), "the engine lives");
}

#[test]
fn what_does_not_fit_the_world_is_refused_by_name() {
    let engine = engine();
    let parse = |text: &str| wat::parse_str(text).unwrap();
    let error = refused(&engine, &parse("(component)")).to_string();
    assert!(error.contains("describe"), "{error}");
    // It exports one of the two.
    let half = PluginText::default().wat().replace("\"handle-tool-call\"", "\"handle-tool\"");
    let error = refused(&engine, &parse(&half)).to_string();
    assert!(error.contains("handle-tool-call"), "{error}");
    // It has the names and other types.
    let other = PluginText::default()
        .wat()
        .replace("(field \"arguments\" string)", "(field \"arguments\" (list u8))");
    assert!(matches!(refused(&engine, &parse(&other)), LoadError::World(_)));
}

#[test]
fn s_16_nothing_is_imported_that_was_not_granted() {
    let engine = engine();
    let text = PluginText { http: true, ..PluginText::default() };
    let error = refused(&engine, &text.bytes().unwrap());
    assert!(matches!(&error, LoadError::Ungranted { needs: "http:HOST", .. }), "{error:?}");
    let text = PluginText { store: true, ..PluginText::default() };
    let error = refused(&engine, &text.bytes().unwrap());
    assert!(matches!(&error, LoadError::Ungranted { needs: "store:NAME", .. }), "{error:?}");
    // One grant does not stand for the other.
    for (grants, fits) in [
        (PluginGrants { http: true, ..PluginGrants::default() }, false),
        (PluginGrants { store: true, ..PluginGrants::default() }, true),
    ] {
        let loaded = Plugin::load(&engine, &text.bytes().unwrap(), grants);
        assert_eq!(loaded.is_ok(), fits, "{grants:?}: {loaded:?}");
    }
    let text = PluginText { http: true, ..PluginText::default() };
    let wasi = wat::parse_str(
        r#"(component (import "wasi:cli/environment@0.2.0" (instance
             (export "get-environment" (func (result (list (tuple string string))))))))"#,
    );
    let error = Plugin::load(
        &engine,
        &wasi.unwrap(),
        PluginGrants { http: true, ..PluginGrants::default() },
    )
    .unwrap_err();
    assert!(matches!(&error, LoadError::Import(name) if name.starts_with("wasi:cli")), "{error:?}");
    assert!(
        Plugin::load(
            &engine,
            &text.bytes().unwrap(),
            PluginGrants { http: true, ..PluginGrants::default() }
        )
        .is_ok()
    );
}

#[test]
fn a_plugin_is_tried_when_it_is_loaded() {
    let engine = engine();
    let text = PluginText { describe: "unreachable", ..PluginText::default() };
    let error = refused(&engine, &text.bytes().unwrap());
    assert!(matches!(&error, LoadError::Trial(CallError::Trapped(_))), "{error:?}");
    let text =
        PluginText { more: "(func $start unreachable) (start $start)", ..PluginText::default() };
    let error = refused(&engine, &text.bytes().unwrap());
    assert!(matches!(&error, LoadError::Trial(CallError::Trapped(_))), "{error:?}");
    let none = PluginText::default()
        .wat()
        .replace("(i32.const 244) (i32.const 1)", "(i32.const 244) (i32.const 0)");
    let error = refused(&engine, &wat::parse_str(none).unwrap());
    assert!(matches!(error, LoadError::Tools(0)), "{error:?}");
}
