//! The judge: what senders, models, people and tools saw, held against what was promised to them.
//!
//! It knows what was put into inboxes, in which order, what each model call was shown, what people
//! were asked and said, which tools ran, and what befell whom. Of the journal it reads when what was
//! written, never what that adds up to: neither the kernel's fold nor the session's state is asked,
//! so what those get wrong the same way every time is seen here.
//!
//! - **MSG-1** a text is new in one turn, and in one place: no turn is about another's text, no call
//!   shows one twice, and what has ended is shown as it went, without holes.
//! - **MSG-2** messages are shown in the order of their inbox; what joins a running turn may come
//!   earlier, never later.
//! - **MSG-3** nothing accepted is lost: it is shown to a model, unless somebody cancelled or deleted
//!   it, or its turn had no time, agent or permission. What came too late to join a turn is a message.
//! - **MSG-4** nothing is deleted unasked, and what was deleted is shown to nobody.
//! - **APR-1** a call that changes something runs only if a person approved of that very action, in
//!   time, before anything else was decided.
//! - **JOB-5** no job is begun days after it was asked for.
//! - **JOB-6** what is said of a job is so: what is said to be done has happened; what may run once or
//!   has a probe, and is said not to have happened, has not and never does; and it happens again only
//!   if whoever did it before was held dead and was not.
//! - **JOB-7** no job is begun once the end of its turn was told.
//! - **JOB-8** no job is given away again by its owner once its result is in the inbox.
//! - **OWN-1** a call is made again only if something befell whoever made it before, or nobody could
//!   reach them.

mod consent;
mod deeds;
mod effort;
mod heard;
mod verdicts;

pub(super) use heard::ShownCall;
pub(super) use verdicts::OutsideJudge;
