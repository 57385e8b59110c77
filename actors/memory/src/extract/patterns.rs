//! How persons begin to say something of themselves. English first, then German, Spanish and French.

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
pub const SUBJECT: &str = "person";

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
