//! The set that CI measures: 40 people in 4 conversations of 500 messages, and 400 questions. The same in every build.

use std::collections::BTreeSet;

use clawnode_proto::{EntityId, SessionKey, Timestamp, id::Kind, memory::MemoryTrust};

use super::measure::{QuestionSet, QuestionSort, SetConversation, SetQuestion};
use crate::store::{
    document::{DocumentId, StoreScope},
    passage::{ConversationMessage, passages},
};

/// What all numbers come from.
const SEED: u64 = 16;
/// Messages of a conversation.
const MESSAGES: usize = 500;
/// 2026-01-01, in milliseconds; a message is an hour after the one before.
const BEGIN: u64 = 1_767_225_600_000;
const HOUR: u64 = 3_600_000;

/// Who talks with whom.
const PEOPLE: [[&str; 10]; 4] = [
    ["Ada", "Bruno", "Chen", "Dilara", "Emil", "Farah", "Goran", "Hana", "Igor", "Jana"],
    ["Karim", "Lena", "Milan", "Nadia", "Omar", "Priya", "Quentin", "Rosa", "Samir", "Tove"],
    ["Ulla", "Viktor", "Wanda", "Ximena", "Yusuf", "Zora", "Anouk", "Bela", "Carla", "Dmitri"],
    ["Elif", "Fabio", "Greta", "Hugo", "Ines", "Jonas", "Kaya", "Lars", "Mina", "Nils"],
];

/// Something that people say of themselves: the statement, a question with its words, one with other words, values.
type Topic = (&'static str, &'static str, &'static str, [&'static str; 6]);

const TOPICS: [Topic; 12] = [
    (
        "My dog is called {v}.",
        "What is {p}'s dog called?",
        "Which pet does {p} own?",
        ["Biscuit", "Rex", "Pepper", "Luna", "Otto", "Waffle"],
    ),
    (
        "I live in {v} now.",
        "Where does {p} live now?",
        "Which town is {p}'s home?",
        ["Lisbon", "Gdansk", "Oslo", "Porto", "Turin", "Graz"],
    ),
    (
        "I work as a {v}.",
        "What does {p} work as?",
        "What is {p}'s profession?",
        ["welder", "nurse", "baker", "pilot", "tailor", "surveyor"],
    ),
    (
        "My favourite food is {v}.",
        "What is {p}'s favourite food?",
        "Which dish does {p} love most?",
        ["ramen", "pierogi", "lasagne", "falafel", "paella", "goulash"],
    ),
    (
        "I play {v} every week.",
        "What does {p} play every week?",
        "Which sport is {p} keen on?",
        ["tennis", "handball", "chess", "hockey", "squash", "badminton"],
    ),
    (
        "I drive a {v}.",
        "What does {p} drive?",
        "Which car has {p}?",
        ["Skoda", "Volvo", "Fiat", "Toyota", "Renault", "Saab"],
    ),
    (
        "I am learning the {v}.",
        "What is {p} learning?",
        "Which instrument does {p} practise?",
        ["cello", "oboe", "banjo", "harp", "trumpet", "accordion"],
    ),
    (
        "I painted my kitchen {v}.",
        "In which colour did {p} paint the kitchen?",
        "Which shade are the walls where {p} cooks?",
        ["yellow", "green", "blue", "orange", "grey", "red"],
    ),
    (
        "I am allergic to {v}.",
        "What is {p} allergic to?",
        "Which ingredient makes {p} ill?",
        ["peanuts", "shellfish", "pollen", "celery", "mustard", "sesame"],
    ),
    (
        "I am reading {v} at the moment.",
        "What is {p} reading at the moment?",
        "Which novel has {p} on the bedside table?",
        ["Middlemarch", "Solaris", "Ulysses", "Emma", "Dracula", "Walden"],
    ),
    (
        "The {v} in my garden is in bloom.",
        "What is in bloom in {p}'s garden?",
        "Which flower does {p} grow?",
        ["lilac", "jasmine", "magnolia", "hibiscus", "lavender", "wisteria"],
    ),
    (
        "My boss is named {v}.",
        "What is the name of {p}'s boss?",
        "Which manager does {p} report to?",
        ["Abernathy", "Kowalski", "Lindqvist", "Moreau", "Petrov", "Tanaka"],
    ),
];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const EVENTS: [&str; 8] = [
    "I ran a half marathon",
    "I moved to a new flat",
    "I had my eyes tested",
    "I met the mayor",
    "I sold my old bicycle",
    "I gave a talk about bees",
    "I broke my wrist",
    "I passed my exam",
];
const RELATIONS: [&str; 2] = ["sister", "neighbour"];
const RELATIVES: [&str; 10] =
    ["Alva", "Birk", "Cosima", "Dorian", "Edda", "Florin", "Gesine", "Henk", "Ilse", "Jorin"];
const TRADES: [&str; 10] = [
    "glassblower",
    "beekeeper",
    "notary",
    "plumber",
    "dentist",
    "florist",
    "typesetter",
    "librarian",
    "astronomer",
    "carpenter",
];
const LEADS: [&str; 6] =
    ["By the way: ", "", "Oh, and ", "You asked me. ", "", "Since it comes up: "];
const ENDS: [&str; 6] = ["", " Just so you know.", "", " Funny, no?", " It was time.", ""];
const CHAT: [&str; 16] = [
    "Did anyone see the {x} on Tuesday?",
    "I could not find the {x}, so I went home early.",
    "The {x} was closed again, can you believe it?",
    "Let us talk about the {x} tomorrow.",
    "That reminds me of the {x} last summer.",
    "Good morning! Who brings the {x}?",
    "I have no opinion about the {x}, really.",
    "We should fix the {x} before the weekend.",
    "Thanks, the {x} helped a lot.",
    "They say a new {x} opens next month.",
    "My week was all about the {x}.",
    "Can you send me the picture of the {x}?",
    "I like the {x} more than I thought.",
    "Nothing new here, only the {x} as ever.",
    "Was that your {x} in front of the house?",
    "I learned a lot from the {x}.",
];
const THINGS: [&str; 24] = [
    "dog show",
    "city bus",
    "garden fair",
    "kitchen sink",
    "food market",
    "tennis court",
    "book club",
    "boss",
    "car park",
    "music school",
    "flower stall",
    "work trip",
    "bakery",
    "paint shop",
    "film",
    "train",
    "game",
    "invoice",
    "printer",
    "roof",
    "concert",
    "lake",
    "museum",
    "neighbour's cat",
];

/// A sequence of numbers that looks random (`SplitMix64`).
struct Draw(u64);

/// A conversation while it is written.
struct Writing {
    people: [&'static str; 10],
    draw: Draw,
    /// Who says it, and what.
    said: Vec<(&'static str, String)>,
    /// Questions, with the places in `said` that answer them.
    questions: Vec<(QuestionSort, String, Vec<usize>)>,
    /// The places of messages that were true before, and of those that replace them.
    updates: Vec<(usize, usize)>,
}

/// The whole set.
pub fn set() -> QuestionSet {
    let mut set = QuestionSet::default();
    for (number, people) in PEOPLE.into_iter().enumerate() {
        let seed = SEED.wrapping_add(u64::try_from(number).unwrap_or_default());
        let mut writing = Writing {
            people,
            draw: Draw(seed),
            said: Vec::new(),
            questions: Vec::new(),
            updates: Vec::new(),
        };
        for person in people {
            writing.facts(person);
            writing.events(person);
            writing.relatives(person);
        }
        writing.chat();
        writing.finish(number, &mut set);
    }
    set
}

/// How many questions of a sort a conversation has.
fn asked(sort: QuestionSort) -> usize {
    match sort {
        QuestionSort::SameWords => 25,
        QuestionSort::Updated => 20,
        QuestionSort::NoAnswer => 10,
        _ => 15,
    }
}

// === impl Draw ===

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).unwrap_or(1);
        usize::try_from(self.next() % end).unwrap_or_default()
    }

    fn of<T: Copy + Default>(&mut self, list: &[T]) -> T {
        list.get(self.below(list.len())).copied().unwrap_or_default()
    }

    fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }
}

// === impl Writing ===

impl Writing {
    /// Says something amid other words. Gives its place.
    fn say(&mut self, person: &'static str, text: &str) -> usize {
        let (lead, end) = (self.draw.of(&LEADS), self.draw.of(&ENDS));
        self.said.push((person, format!("{lead}{text}{end}")));
        self.said.len() - 1
    }

    /// Facts of a person: some are asked for in their words, some in others, some change, and one is never said.
    fn facts(&mut self, person: &'static str) {
        let mut topics = TOPICS;
        self.draw.shuffle(&mut topics);
        for (number, (statement, same, other, values)) in topics.into_iter().take(8).enumerate() {
            let ask = |question: &str| question.replace("{p}", person);
            let mut values = values;
            self.draw.shuffle(&mut values);
            let [value, newer, ..] = values;
            let state = |value: &str| statement.replace("{v}", value);
            if number == 7 {
                self.questions.push((QuestionSort::NoAnswer, ask(same), Vec::new()));
                continue;
            }
            let place = self.say(person, &state(value));
            let question = match number {
                0..3 => (QuestionSort::SameWords, ask(same), vec![place]),
                3..5 => (QuestionSort::OtherWords, ask(other), vec![place]),
                _ => {
                    let now = self.say(person, &state(newer));
                    self.updates.push((place, now));
                    (QuestionSort::Updated, ask(same), vec![now])
                }
            };
            self.questions.push(question);
        }
    }

    /// Two things that a person did on some day.
    fn events(&mut self, person: &'static str) {
        let mut events = EVENTS;
        self.draw.shuffle(&mut events);
        for event in events.into_iter().take(2) {
            let date = format!("{} {}", self.draw.below(28) + 1, self.draw.of(&MONTHS));
            let place = self.say(person, &format!("On {date} {event}."));
            let question = format!("What did {person} do on {date}?");
            self.questions.push((QuestionSort::Dates, question, vec![place]));
        }
    }

    /// Two people that a person knows: who they are, and elsewhere what they do.
    fn relatives(&mut self, person: &'static str) {
        let mut names = RELATIVES;
        self.draw.shuffle(&mut names);
        for (relation, name) in RELATIONS.into_iter().zip(names) {
            let who = self.say(person, &format!("My {relation} is called {name}."));
            let trade = self.draw.of(&TRADES);
            let what = self.say(person, &format!("{name} earns a living as a {trade} these days."));
            let question = format!("What does {person}'s {relation} do for a living?");
            self.questions.push((QuestionSort::TwoHops, question, vec![who, what]));
        }
    }

    fn chat(&mut self) {
        while self.said.len() < MESSAGES {
            let (person, thing) = (self.draw.of(&self.people), self.draw.of(&THINGS));
            let text = self.draw.of(&CHAT).replace("{x}", thing);
            self.said.push((person, text));
        }
    }

    /// The number of each message, from 1, in the order in which they are said.
    fn numbers(&mut self) -> Vec<u64> {
        let mut numbers: Vec<u64> = (1_u64..).take(self.said.len()).collect();
        self.draw.shuffle(&mut numbers);
        for (before, now) in &self.updates {
            if numbers.get(*before) > numbers.get(*now) {
                numbers.swap(*before, *now);
            }
        }
        numbers
    }

    /// Puts what was said into the order in which it is said, and picks the questions.
    fn finish(mut self, number: usize, set: &mut QuestionSet) {
        let numbers = self.numbers();
        let event = |said: usize| numbers.get(said).copied().unwrap_or_default();
        let key: Option<SessionKey> = format!("bench:synthetic:set:room-{number}").parse().ok();
        let Some(key) = key else { return };
        let session = EntityId::derive(Kind::SESSION, &key.to_string());
        let mut said: Vec<(u64, &str, &str)> = (self.said.iter().enumerate())
            .map(|(place, (person, text))| (event(place), *person, text.as_str()))
            .collect();
        said.sort_unstable();
        let messages: Vec<ConversationMessage<'_>> = said
            .iter()
            .map(|(event, person, text)| ConversationMessage {
                event: *event,
                speaker: Some(person),
                trust: MemoryTrust::Person,
                at: Timestamp(BEGIN + event * HOUR),
                text,
            })
            .collect();
        let superseded = |(before, _): &(usize, usize)| DocumentId {
            entity: session,
            event: event(*before),
            part: 0,
        };
        set.conversations.push(SetConversation {
            scope: StoreScope::of_session(&key),
            documents: passages(session, 0, &messages),
            superseded: self.updates.iter().map(superseded).collect(),
        });
        for (sort, text, places) in &self.questions {
            let is_like =
                |question: &&SetQuestion| question.conversation == number && question.sort == *sort;
            if set.questions.iter().filter(is_like).count() < asked(*sort) {
                let relevant: BTreeSet<u64> = places.iter().map(|place| event(*place)).collect();
                let (text, sort) = (text.clone(), *sort);
                set.questions.push(SetQuestion { conversation: number, sort, text, relevant });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::local::LocalStore;

    #[test]
    fn the_set_is_the_same_each_time_and_as_large_as_it_says() {
        let (one, other) = (set(), set());
        assert_eq!(one.questions.len(), 400);
        let messages: usize =
            one.conversations.iter().map(|conversation| conversation.documents.len()).sum();
        assert_eq!(messages, 2_000);
        for (one, other) in one.conversations.iter().zip(&other.conversations) {
            assert_eq!(one.documents, other.documents);
        }
        for question in
            one.questions.iter().filter(|question| question.sort == QuestionSort::Updated)
        {
            let newest = question.relevant.first().unwrap();
            let superseded = &one.conversations[question.conversation].superseded;
            assert!(superseded.iter().all(|id| id.event != *newest));
        }
    }

    /// The floors of the default: words and neighbours. A change that finds less fails here; one that finds more raises them.
    #[test]
    fn the_default_finds_what_was_said() {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalStore::open(folder.path(), None).unwrap();
        let set = set();
        set.put(&store).unwrap();
        let figures = set.measure(&store).unwrap();
        for (sort, recall_5, recall_10, recall_20, ndcg_10, mrr) in FLOORS {
            let found = sort.map_or(figures.all, |sort| figures.of[&sort]);
            assert!(
                found.recall_5 >= recall_5
                    && found.recall_10 >= recall_10
                    && found.recall_20 >= recall_20
                    && found.ndcg_10 >= ndcg_10
                    && found.mrr >= mrr,
                "{sort:?}: {found:?}"
            );
        }
        assert!(figures.separation >= 0.75, "{}", figures.separation);
        for question in
            set.questions.iter().filter(|question| question.sort == QuestionSort::Updated)
        {
            let superseded = &set.conversations[question.conversation].superseded;
            for found in set.ask(&store, question).unwrap() {
                assert!(!superseded.contains(&found.document.id), "MEM-4: {question:?}");
            }
        }
    }

    type Floor = (Option<QuestionSort>, f64, f64, f64, f64, f64);

    /// recall@5, @10, @20, nDCG@10 and MRR.
    const FLOORS: [Floor; 6] = [
        (None, 0.84, 0.88, 0.91, 0.80, 0.80),
        (Some(QuestionSort::SameWords), 1.0, 1.0, 1.0, 0.94, 0.92),
        (Some(QuestionSort::OtherWords), 0.21, 0.28, 0.51, 0.15, 0.14),
        (Some(QuestionSort::Updated), 1.0, 1.0, 1.0, 0.96, 0.95),
        (Some(QuestionSort::Dates), 1.0, 1.0, 1.0, 1.0, 1.0),
        (Some(QuestionSort::TwoHops), 0.85, 1.0, 1.0, 0.81, 0.84),
    ];
}
