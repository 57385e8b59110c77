//! For tests: a port whose messages a test reads, in the place of an entity's actor.

use std::marker::PhantomData;

use ractor::{Actor, ActorProcessingErr, ActorRef, SpawnErr};
use tokio::sync::mpsc;

use super::{Port, handle::EntityMessage};
use crate::{EntityKind, MachineInput};

/// Messages that wait for the test at most.
const MOST: usize = 64;

/// What was said to a port, in order.
type HeardInputs<K> = mpsc::Receiver<MachineInput<K>>;

/// Hands on what it hears.
struct HearingActor<K>(PhantomData<fn(K)>);

impl<K: EntityKind> Port<K> {
    /// A port, and what is said to it. What a test does not read in time is lost.
    pub async fn heard() -> Result<(Self, HeardInputs<K>), SpawnErr> {
        let (tell, heard) = mpsc::channel(MOST);
        let (actor, _) = HearingActor::<K>::spawn(None, HearingActor(PhantomData), tell).await?;
        Ok((Self(actor), heard))
    }
}

impl<K: EntityKind> Actor for HearingActor<K> {
    type Msg = EntityMessage<K>;
    type State = mpsc::Sender<MachineInput<K>>;
    type Arguments = mpsc::Sender<MachineInput<K>>;

    async fn pre_start(
        &self,
        _: ActorRef<EntityMessage<K>>,
        tell: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(tell)
    }

    async fn handle(
        &self,
        _: ActorRef<EntityMessage<K>>,
        message: EntityMessage<K>,
        tell: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        if let EntityMessage::Feed(input) = message {
            // The test has ended, or reads nothing.
            tell.try_send(*input).ok();
        }
        Ok(())
    }
}
