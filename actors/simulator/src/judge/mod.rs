//! The judge: compares what senders, models, people and tools saw with what was promised to them.
//!
//! It knows the order of each inbox, what each model call was shown, what people were asked and
//! answered, which tools ran, and what happened to each process. It reads in the journal when each
//! entry was written, and never what they add up to. It uses neither the kernel's fold nor the
//! session's state, so it finds what those get wrong the same way every time.
//!
//! - **MSG-1** a text is new in one turn, and in one place: no turn is about another's text, no call
//!   shows one twice, and what has ended is shown as it went, without holes.
//! - **MSG-2** messages are shown in the order of their inbox; what joins a running turn may come
//!   earlier, never later.
//! - **MSG-3** nothing accepted is lost: it is shown to a model, unless a client cancelled or deleted
//!   it, or its turn had no time, agent or permission. What came too late to join a turn is a message.
//! - **MSG-4** nothing is deleted unasked, and what was deleted is never shown.
//! - **APR-1** a call that changes something runs only if a person approved of that very action, in
//!   time, before anything else was decided.
//! - **JOB-5** no job is begun days after it was asked for.
//! - **JOB-6** the result of a job is true: what is reported as done has happened; what may run once or
//!   has a probe, and is reported as not done, has not happened and never does. It happens again only
//!   if the process that did it before was held dead and was not.
//! - **JOB-7** no job is begun once the end of its turn is published.
//! - **JOB-8** no job is given away again by its owner once its result is in the inbox.
//! - **CLIENT-1** a tool that a client runs is run by no node; no model is asked in its turn before the
//!   client has brought its result, and the first one counts.
//! - **FIT-1** a turn whose reply has to fit a schema is completed only with a reply that does. One that
//!   does not is corrected at most twice, and the model gets the errors each time; then the turn
//!   fails.
//! - **PLAN-2** a step of a plan runs with the outputs of earlier steps of that plan, as its journal has them, and a person
//!   decides about the same.
//! - **PRICE-1** what a call under a limit costs follows from the journal: the price that was held, and the
//!   usage of its end, rounded up once. It is what its process settled, what its provider billed, and what
//!   `settled` says of its turn.
//! - **OWN-1** a call is made again only if the process that made it before had a fault, or could not
//!   be reached.

mod client;
mod consent;
mod costs;
mod deeds;
mod effort;
mod filled;
mod heard;
mod structured;
mod verdicts;

pub(super) use costs::CallMade;
pub(super) use heard::ShownCall;
pub(super) use verdicts::OutsideJudge;
