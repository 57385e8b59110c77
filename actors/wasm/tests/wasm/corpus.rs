//! S-16: what a hostile plugin does to its host: nothing.

use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use clawnode_wasm::{
    CallError, Plugin, WasmBug, WasmEngine, limits,
    text::{ECHO, PluginText},
};

use crate::{LONG, Tester, call, call_at, calls, engine, load};

/// What an endless call is given.
const SHORT: Duration = Duration::from_millis(200);

const FOREVER: &str = "(loop $again (br $again)) unreachable";

/// One hostile plugin, and what its call ends with.
struct Hostile {
    name: &'static str,
    text: PluginText<'static>,
    ends: fn(&CallError) -> bool,
}

fn trapped(error: &CallError, why: &str) -> bool {
    matches!(error, CallError::Trapped(said) if said.contains(why))
}

fn timed_out(error: &CallError) -> bool {
    *error == CallError::TimedOut(SHORT)
}

fn hostile(name: &'static str, call: &'static str, ends: fn(&CallError) -> bool) -> Hostile {
    Hostile { name, text: PluginText { call, ..PluginText::default() }, ends }
}

/// Asks for memory until it gets none, then breaks.
const GROW: &str = "(loop $again
    (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable";
/// Asks its host for something a million times.
const ASK: &str = "(local.set $n (i32.const 1000000)) (loop $again
    (call $fetch (i32.const 0) (i32.const 1024) (i32.const 3) (i32.const 0) (i32.const 0)
      (i32.const 600))
    (local.set $n (i32.sub (local.get $n) (i32.const 1)))
    (br_if $again (local.get $n))) (call $ok (i32.const 1024) (i32.const 3))";
/// A request with 50,000 headers, all of whose names and values are the same 60 KiB.
const AMPLIFY: &str = "(drop (memory.grow (i32.const 32)))
    (local.set $n (i32.const 131072)) (loop $again
      (call $put (local.get $n) (i32.const 4096))
      (call $put (i32.add (local.get $n) (i32.const 4)) (i32.const 61440))
      (call $put (i32.add (local.get $n) (i32.const 8)) (i32.const 4096))
      (call $put (i32.add (local.get $n) (i32.const 12)) (i32.const 61440))
      (local.set $n (i32.add (local.get $n) (i32.const 16)))
      (br_if $again (i32.lt_u (local.get $n) (i32.const 931072))))
    (call $fetch (i32.const 0) (i32.const 1024) (i32.const 3) (i32.const 131072)
      (i32.const 50000) (i32.const 600))
    (call $ok (i32.const 1024) (i32.const 3))";
/// A result of 8 MiB.
const LARGE: &str = "(drop (memory.grow (i32.const 160)))
    (call $ok (i32.const 4096) (i32.const 8388608))";
/// Grows to one page more than it may have, and says whether it did.
const BEYOND: &str = "(drop (memory.grow (i32.const 1024)))
    (if (i32.eq (memory.grow (i32.const 1023)) (i32.const -1)) (then unreachable))
    (call $ok (i32.const 1024) (i32.const 3))";

fn corpus() -> Vec<Hostile> {
    let with = |more: &'static str, mut hostile: Hostile| {
        hostile.text.more = more;
        hostile
    };
    let asking = |mut hostile: Hostile| {
        hostile.text.http = true;
        hostile
    };
    vec![
        hostile("an endless loop", FOREVER, timed_out),
        with(
            "(func $f (call $f) (call $f))",
            hostile("recursion", "(call $f) unreachable", |error| {
                trapped(error, "call stack exhausted")
            }),
        ),
        hostile("all memory", GROW, |error| trapped(error, "refused more memory")),
        with(
            "(table $t 1 funcref)",
            hostile(
                "a huge table",
                "(if (i32.eq (table.grow $t (ref.null func) (i32.const 0x10000000))
                   (i32.const -1)) (then unreachable)) (i32.const 512)",
                |error| trapped(error, "refused more elements of a table"),
            ),
        ),
        asking(hostile("a million calls to the host", ASK, |error| trapped(error, "10000 calls"))),
        asking(hostile("a request that is larger than it looks", AMPLIFY, |error| {
            trapped(error, "fuel")
        })),
        hostile("a trap", "unreachable", |error| trapped(error, "unreachable")),
        hostile("a division", "(i32.div_u (i32.const 1) (local.get $n))", |error| {
            trapped(error, "zero")
        }),
        hostile(
            "a result beyond its memory",
            "(call $ok (i32.const -16) (i32.const 64))",
            |error| trapped(error, ""),
        ),
        hostile(
            "a result that is no text",
            "(i32.store (i32.const 600) (i32.const 0xfffefdfc))
            (call $ok (i32.const 600) (i32.const 4))",
            |error| trapped(error, "utf-8"),
        ),
        hostile("a result that has no place", "(i32.const -4)", |error| trapped(error, "")),
        hostile(
            "no such result",
            "(call $put (i32.const 512) (i32.const 7)) (i32.const 512)",
            |error| trapped(error, ""),
        ),
        hostile("a huge result", LARGE, |error| trapped(error, "fuel")),
        Hostile {
            name: "an endless welcome",
            text: PluginText { realloc: "(loop $again (br $again))", ..PluginText::default() },
            ends: timed_out,
        },
        Hostile {
            name: "an endless farewell",
            text: PluginText { post: Some("(loop $again (br $again))"), ..PluginText::default() },
            ends: timed_out,
        },
        Hostile {
            name: "a trap at the farewell",
            text: PluginText { post: Some("unreachable"), ..PluginText::default() },
            ends: |error| trapped(error, "unreachable"),
        },
    ]
}

#[test]
fn s_16_a_hostile_plugin_ends_and_its_host_lives() {
    let engine = engine();
    let good = load(&engine, &calls(ECHO));
    for hostile in corpus() {
        let plugin = load(&engine, &hostile.text.bytes().unwrap());
        let begun = Instant::now();
        // Only what ends by its deadline needs a near one: another limit may take a busy machine longer.
        let time = if (hostile.ends)(&CallError::TimedOut(SHORT)) { SHORT } else { LONG };
        let error = call(&plugin, "{}", time).unwrap_err();
        assert!((hostile.ends)(&error), "{}: {error:?}", hostile.name);
        // Far beyond the deadline, and far below what the call would take: the figure is a bench's.
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{}: {:?}",
            hostile.name,
            begun.elapsed()
        );
        assert_eq!(call(&good, "alive", LONG).unwrap(), "alive", "after {}", hostile.name);
    }
}

#[test]
fn s_16_endless_plugins_do_not_hold_up_another() {
    let engine = engine();
    let endless = load(&engine, &calls(FOREVER));
    let good = load(&engine, &calls(ECHO));
    let host = Tester::default();
    thread::scope(|scope| {
        let all = limits::CALLS - 1;
        let running: Vec<_> = (0..all)
            .map(|_| {
                let host = host.clone();
                scope.spawn(|| call_at(&endless, "", LONG, host))
            })
            .collect();
        assert_eq!(call(&good, "alive", LONG).unwrap(), "alive");
        host.is_stopped.store(true, Ordering::Relaxed);
        for call in running {
            assert_eq!(call.join().unwrap(), Err(CallError::Cancelled));
        }
    });
}

#[test]
fn s_16_there_is_room_for_so_many_and_no_more() {
    let engine = engine();
    let endless = load(&engine, &calls(FOREVER));
    let host = Tester::default();
    thread::scope(|scope| {
        let calls: Vec<_> = (0..=limits::CALLS)
            .map(|_| {
                let host = host.clone();
                scope.spawn(|| call_at(&endless, "", LONG, host))
            })
            .collect();
        while !calls.iter().any(thread::ScopedJoinHandle::is_finished) {
            thread::yield_now();
        }
        host.is_stopped.store(true, Ordering::Relaxed);
        let ends: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
        let busy = ends.iter().filter(|end| **end == Err(CallError::Busy)).count();
        assert_eq!(busy, 1, "{ends:?}");
    });
}

#[test]
fn no_call_sees_what_another_left() {
    let count = "(i32.store8 (i32.const 600)
          (i32.add (i32.load8_u (i32.const 600)) (i32.const 49)))
        (global.set $kept (i32.add (global.get $kept) (i32.const 1)))
        (i32.store8 (i32.const 601) (i32.add (global.get $kept) (i32.const 48)))
        (drop (memory.grow (i32.const 8)))
        (i32.store8 (i32.const 602) (i32.add (memory.size) (i32.const 38)))
        (call $ok (i32.const 600) (i32.const 3))";
    let more = "(global $kept (mut i32) (i32.const 0))";
    let text = PluginText { call: count, more, ..PluginText::default() };
    let plugin = load(&engine(), &text.bytes().unwrap());
    for _ in 0..100 {
        assert_eq!(call(&plugin, "", LONG).unwrap(), "110");
    }
}

#[test]
fn a_call_ends_when_its_host_says_so() {
    let engine = engine();
    let plugin = load(&engine, &calls(FOREVER));
    let host = Tester::default();
    thread::scope(|scope| {
        let running = scope.spawn(|| call_at(&plugin, "", LONG, host.clone()));
        host.is_stopped.store(true, Ordering::Relaxed);
        assert_eq!(running.join().unwrap(), Err(CallError::Cancelled));
    });
}

/// Each bug is found by what its absence is tested with above.
#[test]
fn s_16_planted_bugs_are_found() {
    let engine = |planted| WasmEngine::with_bug(None, planted).unwrap();
    let sound = WasmEngine::new(None).unwrap();
    let text = |call: &'static str| {
        PluginText { call, http: true, ..PluginText::default() }.bytes().unwrap()
    };
    let ends = |engine: &WasmEngine, call: &'static str| -> Result<String, CallError> {
        let plugin: Plugin = load(engine, &text(call));
        let host = Tester::default();
        thread::scope(|scope| {
            let called = scope.spawn(|| call_at(&plugin, "", SHORT, host.clone()));
            let begun = Instant::now();
            // A call that would never end is ended by its host, and its error shows that.
            while !called.is_finished() && begun.elapsed() < 10 * SHORT {
                thread::yield_now();
            }
            host.is_stopped.store(true, Ordering::Relaxed);
            called.join().unwrap()
        })
    };
    let is_found = |planted, call, sound_ends: fn(&CallError) -> bool| {
        // Only what ends by its deadline needs a near one: another limit may take a busy machine longer.
        let time = if sound_ends(&CallError::TimedOut(SHORT)) { SHORT } else { LONG };
        let plugin = load(&sound, &text(call));
        let error = call_at(&plugin, "", time, Tester::default()).unwrap_err();
        assert!(sound_ends(&error), "{planted:?}: {error:?}");
        let with_bug = ends(&engine(planted), call);
        assert!(!with_bug.as_ref().is_err_and(sound_ends), "{planted:?}: {with_bug:?}");
    };
    is_found(WasmBug::NoDeadline, FOREVER, timed_out);
    is_found(WasmBug::NoLimiter, BEYOND, |error| trapped(error, "refused more memory"));
    is_found(WasmBug::LooseLift, LARGE, |error| trapped(error, "fuel"));
    is_found(WasmBug::Uncounted, ASK, |error| trapped(error, "10000 calls"));
}

/// Ten seconds of a core and more: what a call may compute is bounded whatever its deadline.
#[test]
fn a_call_computes_so_much_and_no_more_soak() {
    let plugin = load(&engine(), &calls(FOREVER));
    let error = call(&plugin, "", 10 * LONG).unwrap_err();
    assert!(trapped(&error, "instructions"), "{error:?}");
}
