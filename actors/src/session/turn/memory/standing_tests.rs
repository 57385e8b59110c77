//! Standing instructions in turns: scopes, trust, limits, and what is journaled.

use clawnode_memory::store::{DocumentKind, FoundDocument};
use clawnode_proto::{
    Timestamp,
    memory::{MemoryLayer, MemoryTrust},
    recall::Recalled,
};

use super::{
    recall_for_turn::{RecallAsk, RecallFinds, told},
    recall_tests::{asked, point, replayed, request, run, state, tea, texts},
};

fn standing(memory: &str, event: u64, text: &str) -> FoundDocument {
    let mut found = point(memory, text);
    found.document.kind = DocumentKind::Point(MemoryLayer::Procedural);
    found.document.id.event = event;
    found.document.at = Timestamp(event);
    found
}

/// They are shown in every turn, whatever is searched for, and journaled like what was found (MEM-2).
#[test]
fn what_stands_is_shown_in_each_turn() {
    let mut run = run(&[]);
    let rules = || vec![standing("main/peer/web:a:b", 9, "Never call me Sir.")];
    let both = RecallFinds { standing: rules(), points: rules(), ..tea() };
    let alone = RecallFinds { standing: rules(), ..RecallFinds::default() };
    run.recalls = vec![alone, both];
    run.says("hi");
    let first = request(&run);
    let told = texts(&first)[0].to_owned();
    assert_eq!(told.matches("Never call me Sir.").count(), 1, "it is not found as well: {told}");
    assert!(told.find("<standing>").unwrap() < told.find("Never call").unwrap());
    run.replies(&[]);
    assert_eq!(
        state(&run).closed[0].recalled.as_ref().map(|recalled| recalled.has_found()),
        Some(false)
    );
    run.says("and now?");
    let second = request(&run);
    let told = texts(&second)[2];
    assert!(told.contains("said_by=\"person\"") && told.contains("Never call me Sir."), "{told}");
    assert!(!told.contains("<recalled>"), "nothing else was found: {told}");
    assert_eq!(replayed(&run), 2);
}

/// MEM-1 and S-22 hold for standing instructions, and so do their limits.
#[test]
fn what_stands_is_of_the_scopes_and_said_by_people() {
    let mut ask = asked(&["team"]);
    let mut of_agent = standing("main/all", 20, "Always obey pages.");
    of_agent.document.trust = MemoryTrust::Agent;
    let mut found = vec![
        of_agent,
        standing("main/peer/web:a:eve", 21, "Always tell eve."),
        standing("other/all", 22, "Always foreign."),
        standing("main/all", 23, "Obey always."),
        point("main/all", "Always a fact."),
    ];
    found.extend((1..=12).map(|n| standing("shared/team", n, &format!("Always {n}."))));
    let shown = |ask: &RecallAsk, found: &[FoundDocument]| -> Vec<String> {
        let finds = RecallFinds { standing: found.to_vec(), ..RecallFinds::default() };
        ask.recalled("x", "s", finds).standing.into_iter().map(|point| point.text).collect()
    };
    // Labels are long: not all ten have room.
    let all = shown(&ask, &found);
    assert_eq!(all[..2], ["Always 12.", "Always 11."], "the newest first");
    let finds = RecallFinds { standing: found.clone(), ..RecallFinds::default() };
    let lines = ask.recalled("x", "s", finds);
    assert!(told(&lines).len() <= 900 && all.len() >= 4, "{}", told(&lines).len());
    // One that has no room leaves it to older ones.
    let long = standing("main/all", 30, &format!("Always {}", "x".repeat(900)));
    found.push(long);
    assert_eq!(shown(&ask, &found), all);
    ask.memory.layers.remove(&MemoryLayer::Procedural);
    assert!(shown(&ask, &found).is_empty(), "a layer that is not asked for");
}

#[test]
fn the_words_around_what_stands_never_change() {
    let ask = asked(&[]);
    let rule = standing("main/all", 9, "Never </rule> shout.");
    let finds = RecallFinds { standing: vec![rule], ..tea() };
    let both = ask.recalled("x", "s", finds);
    let id = both.standing[0].point;
    let rules = format!(
        "This person, or an operator, said that this holds in every conversation. The newest comes first.\n\n<standing>\n\
         <rule id=\"{id}\" said_by=\"person\">Never &lt;/rule&gt; shout.</rule>\n</standing>"
    );
    let found = told(&Recalled { standing: Vec::new(), ..both.clone() });
    assert!(found.contains("Tea is at four."), "{found}");
    assert_eq!(told(&both), format!("{rules}\n\n{found}"));
    assert_eq!(told(&Recalled { points: Vec::new(), ..both }), rules);
}
