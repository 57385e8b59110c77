//! How persons begin to say something of themselves, and words that end or spoil what they say. English first, then
//! German, Spanish and French.

/// What follows the beginning of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FactKind {
    /// A name, in any case.
    Name,
    /// A name with a capital letter: other words are common here.
    ProperName,
    /// A few words.
    Phrase,
    /// The same, with an article: `as well` is no profession.
    Noun,
    /// One or several things.
    List,
    /// A word of [`DIETS`].
    Diet,
}

/// The beginning of a fact.
#[derive(Clone, Copy, Debug)]
pub(super) struct FactPattern {
    /// In lower case, with a space between words.
    pub(super) begins: &'static str,
    /// What it says of the person. The same in all languages; absent if several may hold at a time.
    pub(super) predicate: Option<&'static str>,
    pub(super) kind: FactKind,
}

/// How much a fact matters, and an allergy.
pub(super) const IMPORTANCE_FACT: u8 = 7;
pub(super) const IMPORTANCE_ALLERGY: u8 = 9;
/// Who facts are about.
pub(super) const SUBJECT: &str = "person";

pub(super) const NAME: &str = "name";
const CALLED: &str = "is called";
const LIVES: &str = "lives in";
const FROM: &str = "is from";
const WORKS: &str = "works for";
const JOB: &str = "works as";

const fn one(begins: &'static str, predicate: &'static str, kind: FactKind) -> FactPattern {
    FactPattern { begins, predicate: Some(predicate), kind }
}

const fn many(begins: &'static str) -> FactPattern {
    FactPattern { begins, predicate: None, kind: FactKind::List }
}

/// A longer beginning is before one that it begins with.
pub(super) const PATTERNS: &[FactPattern] = &[
    one("my name is", NAME, FactKind::Name),
    one("my name's", NAME, FactKind::Name),
    one("my full name is", NAME, FactKind::Name),
    one("i am called", NAME, FactKind::ProperName),
    one("i'm called", NAME, FactKind::ProperName),
    one("call me", CALLED, FactKind::ProperName),
    one("you can call me", CALLED, FactKind::ProperName),
    one("you may call me", CALLED, FactKind::ProperName),
    one("people call me", CALLED, FactKind::ProperName),
    one("my friends call me", CALLED, FactKind::ProperName),
    one("i live in", LIVES, FactKind::Phrase),
    one("i now live in", LIVES, FactKind::Phrase),
    one("i currently live in", LIVES, FactKind::Phrase),
    one("i am living in", LIVES, FactKind::Phrase),
    one("i'm living in", LIVES, FactKind::Phrase),
    one("i moved to", LIVES, FactKind::ProperName),
    one("i've moved to", LIVES, FactKind::ProperName),
    one("i have moved to", LIVES, FactKind::ProperName),
    one("i just moved to", LIVES, FactKind::ProperName),
    one("i am from", FROM, FactKind::ProperName),
    one("i'm from", FROM, FactKind::ProperName),
    one("i come from", FROM, FactKind::ProperName),
    one("i was born in", "was born in", FactKind::Phrase),
    one("i was born on", "was born on", FactKind::Phrase),
    one("i work at", WORKS, FactKind::Phrase),
    one("i work for", WORKS, FactKind::Phrase),
    one("i now work at", WORKS, FactKind::Phrase),
    one("i now work for", WORKS, FactKind::Phrase),
    one("i work as", JOB, FactKind::Noun),
    one("i am working as", JOB, FactKind::Noun),
    one("i'm working as", JOB, FactKind::Noun),
    one("i now work as", JOB, FactKind::Noun),
    many("i am allergic to"),
    many("i'm allergic to"),
    many("i have an allergy to"),
    many("i prefer"),
    one("i am", "diet", FactKind::Diet),
    one("i'm", "diet", FactKind::Diet),
    // German
    one("ich hei\u{df}e", NAME, FactKind::Name),
    one("ich heisse", NAME, FactKind::Name),
    one("mein name ist", NAME, FactKind::Name),
    one("nenn mich", CALLED, FactKind::ProperName),
    one("nenne mich", CALLED, FactKind::ProperName),
    one("ich wohne in", LIVES, FactKind::Phrase),
    one("ich lebe in", LIVES, FactKind::Phrase),
    one("ich komme aus", FROM, FactKind::Phrase),
    one("ich arbeite bei", WORKS, FactKind::Phrase),
    one("ich arbeite f\u{fc}r", WORKS, FactKind::Phrase),
    one("ich arbeite als", JOB, FactKind::Phrase),
    many("ich bin allergisch gegen"),
    // Spanish
    one("me llamo", NAME, FactKind::Name),
    one("mi nombre es", NAME, FactKind::Name),
    one("vivo en", LIVES, FactKind::Phrase),
    one("trabajo como", JOB, FactKind::Phrase),
    many("soy al\u{e9}rgico a"),
    many("soy al\u{e9}rgica a"),
    // French
    one("je m'appelle", NAME, FactKind::Name),
    one("mon nom est", NAME, FactKind::Name),
    one("j'habite \u{e0}", LIVES, FactKind::Phrase),
    one("j'habite en", LIVES, FactKind::Phrase),
    one("je travaille comme", JOB, FactKind::Phrase),
    one("je travaille chez", WORKS, FactKind::Phrase),
    many("je suis allergique \u{e0}"),
    many("je suis allergique aux"),
];

/// What `my X is Y` may be about, and the predicate of it. A favorite or preferred thing is, too.
pub(super) const ATTRIBUTES: &[(&str, &str)] = &[
    ("address", "address"),
    ("birth date", "birthday"),
    ("birthdate", "birthday"),
    ("birthday", "birthday"),
    ("blood type", "blood type"),
    ("city", "city"),
    ("company", "employer"),
    ("country", "country"),
    ("date of birth", "birthday"),
    ("e-mail", "email"),
    ("e-mail address", "email"),
    ("email", "email"),
    ("email address", "email"),
    ("employer", "employer"),
    ("family name", "last name"),
    ("first language", "native language"),
    ("first name", "first name"),
    ("height", "height"),
    ("hometown", "hometown"),
    ("home town", "hometown"),
    ("job", "job"),
    ("job title", "job"),
    ("last name", "last name"),
    ("mobile number", "phone number"),
    ("mother tongue", "native language"),
    ("nationality", "nationality"),
    ("native language", "native language"),
    ("nickname", "nickname"),
    ("occupation", "job"),
    ("phone number", "phone number"),
    ("profession", "job"),
    ("pronouns", "pronouns"),
    ("shoe size", "shoe size"),
    ("surname", "last name"),
    ("telephone number", "phone number"),
    ("time zone", "time zone"),
    ("timezone", "time zone"),
];
/// What a person has several of, or likes: `my favorite X`.
pub(super) const LIKED: [&str; 4] = ["favorite", "favourite", "preferred", "usual"];
/// Whom persons have one of. Of others, a later one says nothing of the one before.
pub(super) const RELATIONS: &[(&str, &str)] = &[
    ("boyfriend", "boyfriend"),
    ("dad", "father"),
    ("father", "father"),
    ("girlfriend", "girlfriend"),
    ("husband", "husband"),
    ("mom", "mother"),
    ("mother", "mother"),
    ("mum", "mother"),
    ("partner", "partner"),
    ("wife", "wife"),
];
/// Whom persons may have several of.
pub(super) const SEVERAL: &[&str] = &[
    "boss",
    "brother",
    "cat",
    "child",
    "colleague",
    "cousin",
    "daughter",
    "doctor",
    "dog",
    "friend",
    "kid",
    "manager",
    "neighbor",
    "neighbour",
    "sister",
    "son",
];
pub(super) const DIETS: [&str; 3] = ["pescatarian", "vegan", "vegetarian"];

/// What may precede the beginning of a fact or an instruction.
pub(super) const LEADS: &[&str] = &[
    "actually",
    "ah",
    "also",
    "and",
    "au fait",
    "btw",
    "by the way",
    "correction",
    "danke",
    "don't forget",
    "don't forget that",
    "for the record",
    "for your information",
    "fyi",
    "good afternoon",
    "good evening",
    "good morning",
    "ja",
    "just so you know",
    "merci",
    "nein",
    "nice to meet you",
    "no",
    "non",
    "note that",
    "now",
    "oh",
    "ok",
    "okay",
    "please",
    "bitte",
    "please note that",
    "please remember",
    "please remember that",
    "por cierto",
    "remember",
    "remember that",
    "so",
    "sorry",
    "thank you",
    "thanks",
    "well",
    "yes",
    "\u{fc}brigens",
];
/// Greetings, which a name may follow.
pub(super) const GREETINGS: [&str; 10] =
    ["hi", "hello", "hey", "dear", "hallo", "moin", "hola", "bonjour", "salut", "greetings"];
/// Words that begin another fact of the same sentence, after a comma or one of [`JOINS`].
pub(super) const BEGINS_AGAIN: [&str; 15] = [
    "i", "i'm", "i've", "my", "call", "please", "ich", "mein", "meine", "me", "mi", "vivo",
    "j'habite", "je", "mon",
];
/// Words between two facts.
pub(super) const JOINS: [&str; 9] = ["and", "but", "so", "und", "aber", "y", "pero", "et", "mais"];
/// Words that end what a fact says.
pub(super) const ENDS: &[&str] = &[
    "although", "as", "because", "but", "for", "if", "porque", "parce", "since", "so", "though",
    "weil", "when", "where", "which", "while", "who", "aber", "pero", "mais", "sondern", "denn",
];
/// Words after a comma that do not go on with a list.
pub(super) const NO_ENTRY: &[&str] = &[
    "any", "are", "can", "could", "do", "does", "give", "help", "how", "i", "is", "it", "let",
    "my", "not", "please", "right", "should", "show", "tell", "thank", "thanks", "that", "then",
    "this", "what", "why", "will", "would", "you", "your",
];
/// Words at the end that say nothing.
pub(super) const TRAILING: &[&str] = &[
    "actually",
    "again",
    "anyway",
    "btw",
    "currently",
    "jetzt",
    "now",
    "nowadays",
    "please",
    "thanks",
    "though",
    "today",
    "too",
];
/// A sentence with one of these says nothing of its person: it doubts, supposes or reports.
pub(super) const DOUBTS: &[&str] = &[
    "assume",
    "assuming",
    "could",
    "falls",
    "guess",
    "hypothetically",
    "if",
    "imagine",
    "maybe",
    "might",
    "perhaps",
    "peut-\u{ea}tre",
    "pretend",
    "quiz\u{e1}s",
    "said",
    "says",
    "si",
    "suppose",
    "supposing",
    "unless",
    "vielleicht",
    "wenn",
    "whether",
    "wish",
    "would",
    "wrote",
];
/// A value with one of these is not one.
pub(super) const NEGATIONS: &[&str] = &[
    "anymore", "isn't", "jamais", "kein", "keine", "keinen", "longer", "never", "nicht", "nie",
    "no", "non", "none", "not", "nothing", "nunca", "pas",
];
/// No value begins with one of these: it holds for a moment, or points to something before.
pub(super) const NO_VALUE: &[&str] = &[
    "about",
    "almost",
    "also",
    "bad",
    "being",
    "better",
    "broken",
    "coming",
    "due",
    "fine",
    "first",
    "former",
    "free",
    "fun",
    "getting",
    "going",
    "gone",
    "good",
    "great",
    "hard",
    "he",
    "her",
    "here",
    "his",
    "home",
    "hope",
    "how",
    "it",
    "its",
    "just",
    "last",
    "late",
    "latter",
    "like",
    "missing",
    "moment",
    "my",
    "myself",
    "near",
    "next",
    "night",
    "now",
    "off",
    "okay",
    "on",
    "only",
    "option",
    "our",
    "out",
    "over",
    "past",
    "peace",
    "present",
    "really",
    "same",
    "second",
    "she",
    "sick",
    "some",
    "something",
    "soon",
    "spelled",
    "spelt",
    "still",
    "such",
    "that",
    "their",
    "them",
    "there",
    "these",
    "they",
    "this",
    "those",
    "time",
    "times",
    "to",
    "today",
    "tomorrow",
    "too",
    "under",
    "unknown",
    "up",
    "very",
    "what",
    "why",
    "wrong",
    "yesterday",
    "you",
    "your",
    "fear",
    "denial",
    "pain",
    "hell",
];
/// No name begins with one of these.
pub(super) const NO_NAME: &[&str] = &[
    "a",
    "an",
    "at",
    "back",
    "by",
    "crazy",
    "der",
    "die",
    "das",
    "eine",
    "friday",
    "from",
    "in",
    "important",
    "irrelevant",
    "later",
    "long",
    "mad",
    "maybe",
    "monday",
    "mud",
    "pronounced",
    "saturday",
    "secret",
    "stupid",
    "sunday",
    "the",
    "thursday",
    "tuesday",
    "wednesday",
    "whatever",
    "when",
    "whenever",
    "with",
    "written",
    "asap",
];
/// Small words within a name.
pub(super) const PARTICLES: [&str; 14] =
    ["al", "bin", "da", "de", "del", "della", "den", "der", "di", "la", "of", "ter", "van", "von"];

/// A message with a sentence that begins so is about a text or a play: what it says is not its person's.
pub(super) const GIVES_WORK: &[&str] = &[
    "act as",
    "assume",
    "correct",
    "imagine",
    "let's pretend",
    "let's say",
    "paraphrase",
    "parse",
    "play",
    "pretend",
    "proofread",
    "rephrase",
    "rewrite",
    "roleplay",
    "role-play",
    "simulate",
    "summarise",
    "summarize",
    "suppose",
    "translate",
    "can you translate",
    "could you translate",
    "can you proofread",
    "could you proofread",
    "can you rewrite",
    "could you rewrite",
    "can you summarize",
    "could you summarize",
    "\u{fc}bersetze",
    "traduce",
    "traduis",
];
/// The same for a sentence that has one of these, and is no fact itself.
pub(super) const MATERIAL: &[&str] = &[
    "article",
    "character",
    "dialogue",
    "essay",
    "excerpt",
    "fiction",
    "following",
    "hypothetical",
    "lyrics",
    "novel",
    "paragraph",
    "passage",
    "persona",
    "poem",
    "quote",
    "quoted",
    "roleplay",
    "role-play",
    "scene",
    "screenplay",
    "sentence",
    "sentences",
    "story",
    "transcript",
];
