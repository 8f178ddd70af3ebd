"""The table "Failure | What happens" of spec 20 section 3.12, row by row, on real NATS, Redis and an embedded API.

Rows with a test of their own here have its words in that test's docstring; the others are shown elsewhere:

    S dies before publishing: tests/failures/test_schedulers_and_gateways.py::test_s_dies_before_publishing
    S dies before publishing: tests/scheduler/test_retiring.py::test_a_lock_proves_death_at_once
    S dies after publishing: tests/failures/test_schedulers_and_gateways.py::test_s_dies_after_publishing
    S dies after publishing: tests/failures/test_schedulers_and_gateways.py::test_s_dies_after_publishing_and_its_lease_is_over_before_advance
    G dies before advance / after it / after the API write: tests/failures/test_schedulers_and_gateways.py::test_g_dies
    G dies before advance / after it / after the API write: tests/integration/test_redelivery.py::test_gateway_killed_between_write_and_acknowledgement
    Decision redelivered late: tests/failures/test_schedulers_and_gateways.py::test_decision_redelivered_late
    Result lost: tests/failures/test_schedulers_and_gateways.py::test_result_lost
    Decision lost with its stream: tests/failures/test_schedulers_and_gateways.py::test_decision_lost_with_its_stream_while_held
    Decision lost with its stream: tests/gateway/test_lost_decisions.py::test_a_lost_decision_gives_its_room_back_and_the_pod_is_bound_anew
    Decision lost with its stream: tests/failures/test_storage.py::test_nats_store_lost
    R slow, dead, or two: tests/failures/test_cluster_changes.py::test_r_dead_only_delays_freeing
    R slow, dead, or two: tests/reconciler/test_catching_up.py::test_who_lags_tells_nothing_until_it_has_caught_up
    R slow, dead, or two: tests/reconciler/test_catching_up.py::test_an_audit_does_not_judge_by_a_picture_that_is_late
    R slow, dead, or two: tests/ledger/test_hostile.py::test_a_paused_reconciler_cannot_go_on_with_its_rebuild
    R slow, dead, or two: tests/reconciler/test_term.py::test_the_older_of_two_reconcilers_gives_up
    R slow, dead, or two: tests/reconciler/test_service.py::test_a_killed_reconciler_is_followed_and_what_it_missed_is_folded
    Node deleted: tests/failures/test_cluster_changes.py::test_node_deleted_under_a_held_gang
    Node deleted: tests/failures/test_cluster_changes.py::test_node_deleted_while_binding
    Gang partly bound: tests/failures/test_schedulers_and_gateways.py::test_gang_partly_bound
    Gang partly bound: tests/scheduler/test_service.py::test_a_gang_bound_in_part_is_told_and_made_whole
    Gang partly bound: tests/scheduler/test_gang_partial.py::test_evicted_once_after_the_wait_time
    Quota lowered or closed: tests/failures/test_cluster_changes.py::test_quota_lowered
    Quota lowered or closed: tests/ledger/test_moving.py::test_release_frees_what_was_taken_whatever_became_of_the_quota
    Foreign scheduler binds: tests/failures/test_cluster_changes.py::test_foreign_scheduler_binds
    Foreign scheduler binds: tests/reconciler/test_service.py::test_what_cannot_be_charged_and_nodes_below_zero_are_told
    Redis unreachable: tests/gateway/test_session.py::test_without_the_ledger_nothing_is_bound_and_old_claims_are_void_after_it
    Redis out of memory: tests/ledger/test_client.py::test_out_of_memory_takes_nothing_but_lets_work_end
    Redis out of memory: tests/failures/test_storage.py::test_redis_out_of_memory
    Redis closed: tests/scheduler/test_service.py::test_nothing_is_bound_while_the_ledger_is_closed
    Redis writes lost: tests/failures/test_cluster_changes.py::test_redis_writes_lost
    Redis writes lost: tests/failures/test_storage.py::test_nonsense_in_the_ledger
    Redis writes lost: tests/ledger/test_hostile.py::test_a_primary_that_is_made_a_replica_is_left_and_a_promoted_one_is_closed
    Redis writes lost: tests/gateway/test_barrier.py::test_redis_restarts_empty
    Redis writes lost: tests/integration/test_redelivery.py::test_redis_restarted_empty

Not here: reservations, and the BindingAdmissionWebhook, which are built later.
"""  # noqa: E501
