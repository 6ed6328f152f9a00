//! Deliberate mistakes, which the simulator must find: a simulator that finds none of them finds no others either.
//!
//! They are compiled in with the feature `mutants` alone, which only builds of `dapple-sim` turn on. Without it,
//! [`is_on`] is `false` to the compiler, and nothing is left of them.

macro_rules! mutants {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A deliberate mistake.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Mutant {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Mutant {
            /// Every mistake there is.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];
        }
    };
}

mutants! {
    /// One more node may be down than the budget says.
    BudgetOffByOne,
    /// Nodes that are down for other reasons than an update do not count.
    OutagesUncounted,
    /// One more node may have a second pod than the surge says.
    SurgeOffByOne,
    /// The partition holds nothing back.
    PartitionForgotten,
    /// A node that a rollout has touched does not count once it is not Ready.
    TouchedForgotten,
    /// Nobody remembers that a taint has driven the rollout's pod off a node.
    DrivenOffForgotten,
    /// Pods of nodes whose kubelet does not answer are deleted and changed.
    UnknownTouched,
    /// A percentage of nodes is of those that can start a pod just now.
    PercentOfReady,
    /// A revision counts as complete while nodes are held back at another.
    CurrentTooSoon,
    /// Where there is a selector, the partition holds nothing back.
    SelectorAlone,
    /// What is left of a rolling update counts under OnDelete.
    OnDeleteRolls,
    /// Pods are compared by their label, not by what they mean.
    HashRestarts,
    /// As much is done at once as there is to do.
    BurstIgnored,
    /// Pods are deleted whatever they have become since.
    PreconditionDropped,
    /// A paused rollout goes on.
    PauseForgotten,
    /// A node with a write that was not seen yet is decided about.
    ExpectationDropped,
    /// A write whose answer was lost counts as not done.
    DoubtDropped,
    /// Work is begun before anything was listed.
    FirstListSkipped,
    /// A subscriber that comes in the middle of a list is told only what is listed from then on.
    LateSubscriberMisses,
    /// A kind that is not installed counts as one of which there are no objects.
    MissingIsEmpty,
    /// Whoever has led goes on, whether it could renew the lease or not.
    LeaderForLife,
    /// Whatever fails ends the look.
    StopsAtFirstError,
    /// What failed is not tried again.
    FailureForgotten,
    /// Pods of other owners are taken in.
    ForeignAdopted,
    /// Pods of nodes that are gone are left.
    StraysLeft,
    /// Nodes whose revision is gone get the newest.
    GoneIsNewest,
    /// Nobody looks when a node's labels change.
    LabelsIgnored,
    /// What came to nothing is tried again at once.
    HurriesInVain,
    /// Revisions are never dropped.
    HistoryKept,
    /// A node that leaves a group is still counted.
    LeaversKept,
    /// A group's status is written without the generation that it is of.
    GenerationForgotten,
    /// A node loses the label of a group though pods on it select on it.
    LabelTakenFromPods,
    /// A policy that is gone stays confirmed.
    GoneStaysBound,
    /// A gate goes off without the selector of the pod's group.
    SelectorForgotten,
    /// Pods that have a seat do not count.
    SeatGivenTwice,
    /// Pods whose owner numbers them get any seat.
    NumberForgotten,
    /// Owners that number their pods from another number than zero do so from zero.
    StartForgotten,
    /// Pods go anywhere while a policy is asked for and not confirmed.
    HeldReleased,
    /// Pods whose owner is not known yet go anywhere.
    UnknownReleased,
    /// What was copied to a pod when it came stays, whatever its application says by now.
    CopiedLabelsKept,
    /// Pods that have ended keep their seats.
    EndedKeepSeats,
    /// A pod is moved however many others are unavailable.
    MoveWithoutBudget,
    /// Only pods of its own group count when a pod is moved.
    BudgetPerGroup,
    /// A pod is moved though no node of the group that should have it fits.
    MoveWithoutTarget,
    /// A pod is moved to a group however many applications have lost theirs there.
    UnwellGroupForgotten,
    /// A leader moves pods as soon as it leads.
    FirstMinuteForgotten,
    /// Pods are moved as fast as they can be.
    MinuteForgotten,
    /// A pod is moved to a group that was changed a moment ago.
    QuietForgotten,
    /// Pods are moved while their policy is suspended.
    SuspendedMoved,
    /// Pods are moved that must not be evicted.
    ProtectedMoved,
    /// Pods of Jobs are moved.
    JobsMoved,
    /// Pods of Jobs that wait behind the gate are replaced.
    GatedJobsReplaced,
    /// A pod gets another edition however many others are unavailable.
    EditionWithoutBudget,
    /// As many pods of a group get another edition at once as may be away, before one has shown that it is good.
    FirstNotAlone,
    /// Groups get another edition in the wrong order.
    OrderForgotten,
    /// Pods that are well get another edition while their workload rolls out.
    RolloutDisturbed,
    /// What has not helped is done again at once.
    FutileForgotten,
    /// Pods are placed while only some of them have been listed anew.
    HalfListPlaced,
    /// What is not seen within half a minute was not done, however long a watch is silent.
    SilenceForgotten,
    /// A workload that asks for nothing and one below it that does are both looked at for the same pods.
    TwoBudgets,
    /// Pods that are restarted where they run do not count against PodDisruptionBudgets.
    RestartsUncounted,
    /// What a pool put on nodes is undone however many leave it at once.
    LeaversUnguarded,
    /// Nodes of pools are written as fast as they can be.
    NodeWritesUnpaced,
    /// Taints by which Kubernetes deletes pods are put on nodes though their pool does not allow it.
    ExecutedUnasked,
    /// They are put on one node right after another.
    ExecutedAtOnce,
    /// They are put on again when somebody has taken them off.
    ExecutedAgain,
    /// They are put on further nodes while one that has them is not Ready.
    ExecutedOntoMore,
    /// What a pool replaced on a node is not put back.
    ReplacedForgotten,
    /// Nodes whose label names no pool are in none.
    GonePoolIsNone,
    /// Nodes of a suspended pool are written.
    SuspendForgotten,
    /// What others change is put right for ever.
    FoughtForEver,
    /// Pools of an application are changed however many others are in change.
    PoolBudgetForgotten,
    /// As many pools are changed at once as may be, before one of them has shown that it is done.
    FirstPoolNotAlone,
    /// A pool that a rollout has changed does not count once it is done, whatever becomes of it.
    PoolsDownUncounted,
    /// A pool that was well before a change did it no good counts as one that never was, once another change has reached it.
    ChangedTwiceForgotten,
    /// A pool does not count while it has no workload, nor as before once that is made anew.
    LostPoolsUncounted,
    /// A pool counts as done as soon as its pods are available.
    PoolSettledForgotten,
    /// A rollout goes on though a pool that was well is not done in time.
    PoolStopForgotten,
    /// A rollout that was stopped goes on once what stopped it is well again.
    PoolStopUnremembered,
    /// A fix comes last to pools that the rollout before it broke.
    BrokenPoolsLast,
    /// Workloads of pools that leave are deleted at once.
    GraceForgotten,
    /// They are deleted however many pools leave at once.
    HoldForgotten,
    /// Those that are left of many that left at once are deleted when they are few.
    HoldDissolves,
    /// They are deleted however many others are in change, or being deleted.
    RemovalsUnbudgeted,
    /// A pool that is back is noted to be leaving still.
    LeavingKeptNoted,
    /// A pool leaves when its NodePool is gone, though nodes have its label.
    GonePoolsLeave,
    /// While nobody knows which NodePools there are, there are none.
    UnknownPoolsAreNone,
    /// The number of pods that people set goes back to the declared one.
    ScalingUndone,
    /// Numbers of pods are written that autoscalers set.
    AutoscalerOverruled,
    /// Workloads of suspended applications are written.
    SuspendedAppWritten,
    /// A workload that others keep changing is put right for ever.
    RepairedForEver,
    /// What others have changed of a workload is left.
    DriftLeft,
    /// A new revision restarts pools for which it changes nothing.
    RevisionRestartsPools,
    /// Restarts that people asked for are undone.
    RestartUndone,
    /// Pauses that people asked for are undone.
    PauseUndone,
    /// Workloads that nobody owns are taken in whatever their labels are.
    StrangersTakenIn,
    /// A workload that is made anew gets the newest revision, whatever its pool had.
    JoinsAtNewest,
    /// What a marker asks of a pod's labels sees its own marks.
    OwnMarksSeen,
    /// A probe of which nothing is known has failed.
    UnknownIsFailed,
    /// A result counts for every run of its container.
    OldResultTaken,
    /// What markers have set on a pod is not remembered there.
    MarksUnrecorded,
    /// A new leader may change as many pods in its first minute as in any other.
    AllowanceFullAtFirst,
    /// A marker changes as many pods as there are to change.
    AllowanceForgotten,
    /// The seat of a marked pod that ended goes to any pod at once.
    SeatsNotKept,
    /// Pods that a marker changes again and again do not rest.
    RestsForgotten,
    /// Pods are patched for markers as fast as the API server takes it.
    MarksUnpaced,
    /// A marker that is suspended goes on.
    SuspendedMarked,
    /// Taking marks off takes off what others have written there since.
    OthersValuesTaken,
    /// Pods are marked that have other values, whatever the policy says.
    ConflictsIgnored,
}

/// Whether mistakes can be made in this build at all.
pub const fn can_be_made() -> bool {
    cfg!(feature = "mutants")
}

#[cfg(feature = "mutants")]
thread_local! {
    static ON: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Makes a mistake on this thread from now on, or none.
#[cfg(feature = "mutants")]
pub fn make(mutant: Option<Mutant>) {
    ON.set(mutant);
}

/// Whether this mistake is made.
#[cfg(feature = "mutants")]
pub fn is_on(mutant: Mutant) -> bool {
    ON.get() == Some(mutant)
}

/// Whether this mistake is made: never.
#[cfg(not(feature = "mutants"))]
pub const fn is_on(_: Mutant) -> bool {
    false
}
