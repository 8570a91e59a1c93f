"""Which tests try what docs/security.md says that nobody can do. The beginning of a sentence or row -> tests.

`tests/docs/test_security_page.py` reads the page and this table: no sentence without a test, no test that is not there.
"""

from __future__ import annotations

TENANT = "engines/kubernetes/test_hostile_tenant.py"
LOOKED = f"{TENANT}::test_records_are_looked_at_and_left_as_they_are"
MADE = f"{TENANT}::test_the_controller_makes_nothing_but_what_submitters_made"
DECIDE = "engines/kubernetes/reconcile/test_decide.py"
TRIALS = "sweeps/kubernetes/test_trial_runs.py"
ACCOUNTS = "security/test_accounts.py::test_what_its_page_says_it_cannot"
NAMED = "security/test_accounts.py::test_the_dashboard_is_nobody_but_who_was_named"
READER = "security/test_readers.py::test_who_may_only_look_sees_no_secret_of_a_run"
RECORDS = "engines/kubernetes/test_record_store.py"
EXPIRY = "engines/kubernetes/test_expiry.py"
STORES = "engines/shared/test_checkpoint_store.py"
GATE = "engines/kubernetes/gate/test_decide.py"
FOLDERS = "clusters/provisioner/test_folders.py"

RULE: dict[str, tuple[str, ...]] = {
    "Longboat has no users and no passwords of its own": (
        "clusters/users/test_access.py::test_all_of_a_run_s_life_and_nothing_else",
        "engines/kubernetes/test_documented_roles.py::test_the_role_is_enough_for_everything",
    ),
    "It never decides where something is made": (LOOKED, MADE),
    "Looking changes nothing that is not one's own": (LOOKED,),
    "One that says another name or namespace": (LOOKED, MADE, f"{RECORDS}::test_a_record_that_nobody_acts_upon"),
    "**The first attempt is made by its submitter**": (
        f"{DECIDE}::test_the_first_attempt_is_made_by_nobody_who_looks",
        MADE,
    ),
    "Without it a run is given up": (
        f"{DECIDE}::test_the_first_attempt_is_made_by_nobody_who_looks",
        f"{DECIDE}::test_a_submitter_that_uploads_for_long_and_lives_is_waited_for",
    ),
    "It carries a hash of the record": ("security/test_templates.py::test_the_hash_in_a_template_cannot_be_changed",),
    "Without a template, or with another hash": (MADE,),
    "No record has a part in it": (
        "engines/kubernetes/observe/test_restarts.py::test_no_number_counts_that_is_not_one_of_the_job_s_retries",
        "engines/kubernetes/observe/test_restarts.py::test_a_forged_record_makes_no_endless_list",
        "launcher/pod/restart/test_in_place.py::test_the_job_s_retries_decide_how_often",
    ),
    "A pod that is replaced is made by the Job": (
        "launcher/gang/test_greetings.py::test_while_the_name_is_free",
        "launcher/gang/test_greetings.py::test_while_a_member_has_the_name",
        "launcher/gang/test_channel.py::test_unauthenticated_connections_get_no_answer",
        "launcher/pod/restart/test_replacement.py::test_a_replacement_that_comes_while_the_old_one_is_silent",
        "launcher/gang/test_handshake.py::test_the_token_of_another_gang_opens_nothing",
    ),
    "**A trial is a copy of its sweep's template**": (
        f"{TRIALS}::test_a_record_that_was_changed_makes_no_trial",
        f"{TRIALS}::test_a_template_of_another_owner_vouches_for_nothing",
    ),
    "**A service that follows** gets another step": (
        "serving/kubernetes/test_services.py::test_a_followed_step_is_one_variable_of_the_same_pods",
        "serving/kubernetes/test_controller.py::test_a_service_follows_without_any_process_of_its_submitter",
        "launcher/pod/replica/test_followed.py::test_what_is_no_step_leads_nowhere",
        "serving/kubernetes/test_following.py::test_what_is_no_answer",
    ),
    "**Expiry removes what the record owns**": (MADE, f"{EXPIRY}::test_what_the_controller_removes"),
    "On this machine only the user who made it": (
        "serving/local/test_supervisor.py::test_a_service_of_another_user_is_only_looked_at",
        "serving/local/test_supervisor.py::test_who_has_not_the_secrets_of_a_service_does_not_take_it_over",
    ),
    "In a cluster its Secrets have names that nobody": (
        "security/test_services.py::test_names_of_a_services_secrets_cannot_be_guessed",
        "serving/kubernetes/test_services.py::test_a_secret_of_somebody_else_is_not_used",
    ),
    "**`ps` writes nothing": (LOOKED, "engines/kubernetes/test_look.py::test_an_engine_that_only_looks_takes_no_turns"),
    "A pod that reads a run's storage": (
        LOOKED,
        "engines/kubernetes/exec/test_helper_pod.py::test_a_helper_pod_mounts_lasting_volumes_at_the_runs_paths",
    ),
}

RIGHTS: dict[str, tuple[str, ...]] = {
    "the controller | the same verbs without creating pods": (
        ACCOUNTS,
        "engines/kubernetes/test_controller_rights.py::test_the_rights_are_those_that_turns_use",
    ),
    "the autoscaler | reads workloads": (
        ACCOUNTS,
        "autoscaler/test_rights.py::test_every_documented_right_is_used_and_no_other",
        "engines/kubernetes/install/test_autoscaler_manifests.py::test_everybody_may_see_the_status_and_nothing_else",
    ),
    "the provisioner of storage | reads claims": (ACCOUNTS,),
    "the [dashboard](ui.md#in-a-cluster) | reads ConfigMaps": (ACCOUNTS,),
    "the launcher in a pod | no token": ("security/test_pods.py::test_a_rank_has_no_token_and_no_rights",),
}

ATTACKERS: dict[str, tuple[str, ...]] = {
    "read ConfigMaps of a namespace (`view`)": (
        READER,
        "engines/shared/test_secret_urls.py::test_only_the_runs_own_secret_holds_credentials_of_urls",
    ),
    "write ConfigMaps of a namespace": (MADE,),
    "forge what `ps` shows of that namespace": (MADE,),
    "have a run repeat what its submitter allowed": (MADE, LOOKED),
    "stop a sweep, forget results": (
        f"{TRIALS}::test_parameters_of_a_forged_state_are_never_filled_in",
        f"{TRIALS}::test_nothing_is_computed_from_a_state_that_nobody_vouches_for",
    ),
    "create Secrets or Services too": (MADE,),
    "read Secrets of a namespace": (
        "launcher/gang/test_handshake.py::test_the_token_of_another_gang_opens_nothing",
        "launcher/gang/test_handshake.py::test_proofs_differ_by_token_and_purpose",
    ),
    "replace Secrets of a namespace": (ACCOUNTS, MADE),
    "create Jobs or pods of a namespace": (MADE,),
    "create pods, where storage is `nfs`": (
        "clusters/provisioner/test_volumes.py::test_a_folder_of_a_server_is_for_all_nodes",
        "clusters/provisioner/test_volumes.py::test_no_other_name_is_ever_a_folder_to_delete",
        f"{FOLDERS}::test_a_link_in_place_of_the_folder_is_no_way_out",
    ),
    "reach a pod's ports": (
        "launcher/gang/test_handshake.py::test_one_packet_without_a_token_changes_nothing",
        "launcher/gang/test_handshake.py::test_a_gang_forms_and_ends_in_a_crowd_of_strangers",
        "launcher/starters/test_mpi_server.py::test_without_the_token_nothing_runs_and_nothing_ends_the_launcher",
    ),
    "reach the controller's port": (
        "security/test_ports.py::test_who_reaches_the_controller_reads_figures_and_nothing_else",
    ),
    "reach the network, where policies work": (
        "engines/kubernetes/manifests/test_network_policy.py::test_it_selects_every_pod_of_the_run_and_of_no_other",
        "engines/kubernetes/manifests/test_network_policy.py::test_the_server_takes_it_whole_and_finds_the_same_pods",
        "engines/kubernetes/manifests/test_network_policy.py::test_labels_of_a_job_cannot_make_its_pods_members_of_another_run",
    ),
    "write what a pod says": (
        "engines/kubernetes/test_bounds.py::test_whatever_a_launcher_answers_a_status_is_made_of_it",
        "engines/kubernetes/test_bounds.py::test_a_launcher_that_talks_without_end_is_not_listened_to",
        "engines/kubernetes/observe/test_termination.py::test_any_json_is_read_without_an_exception",
    ),
    "write in a store that a run reads": (
        f"{STORES}::test_credentials_go_to_the_callers_endpoint_and_nowhere_else",
        "storage/test_download.py::test_a_password_does_not_follow_a_redirect",
        "storage/test_data.py::test_a_wrong_checksum_is_refused",
    ),
    "reach the dashboard's port in a cluster": (
        "web/test_access.py::test_without_the_right_secret_nothing_is_told",
        "web/test_users.py::test_a_name_without_the_proxys_proof_is_nobodys",
    ),
    "set `X-Forwarded-User` without the proof": ("web/test_users.py::test_a_name_without_the_proxys_proof_is_nobodys",),
    "read the Secret `longboat-ui`": (
        NAMED,
        "web/test_users.py::test_the_clusters_rights_decide_who_sees_and_stops_what",
    ),
    "act as the dashboard": (NAMED, ACCOUNTS),
    "act as the controller": (ACCOUNTS,),
    "act as the autoscaler": (ACCOUNTS,),
    "act as the provisioner": (ACCOUNTS,),
}

FIELDS: dict[str, tuple[str, ...]] = {
    "`record.name`, `record.namespace`": (
        LOOKED,
        MADE,
        f"{RECORDS}::test_a_record_is_read_with_the_name_of_its_object",
    ),
    "`record.user`": (LOOKED, "engines/kubernetes/test_pruning.py::test_runs_of_others_stay_unless_they_are_asked_for"),
    "`job.priority`": (f"{GATE}::test_priority_then_creation_then_name",),
    "`gate_s`": ("engines/kubernetes/test_look.py::test_how_long_a_gang_may_take_is_its_own_matter",),
    "`longboat.dev/keep-s`, `state.ended`": (MADE, f"{EXPIRY}::test_what_the_controller_removes"),
    "`job.timeout_s`": (
        f"{GATE}::test_known_ends_of_running_runs_make_room_for_reservations",
        f"{GATE}::test_nobody_passes_a_run_that_has_waited_for_hours",
    ),
    "`state.started`": ("security/test_records.py::test_a_forged_start_gives_no_more_time",),
    "`job` `env` and `secrets`": (
        f"{STORES}::test_credentials_go_to_the_callers_endpoint_and_nowhere_else",
        f"{STORES}::test_a_server_that_only_the_record_names_is_not_asked",
    ),
    "`storage.folder`, `checkpoint_dir`": (LOOKED, f"{STORES}::test_only_folders_that_are_the_runs_own_are_emptied"),
    "pods, Jobs, JobSets, Workloads": (
        "autoscaler/observe/test_odd_objects.py::test_one_that_cannot_be_read_is_said_and_all_others_are_served",
        "autoscaler/observe/test_odd_objects.py::test_a_budget_that_cannot_be_read_allows_nothing_in_its_namespace",
    ),
    "`longboat.dev/submitter-alive-at`": (
        "engines/kubernetes/submit/test_submission_heartbeat.py::test_an_invalid_heartbeat_time_counts_as_none",
        f"{DECIDE}::test_what_the_record_says_of_its_age_does_not_give_it_more_time",
    ),
}

ELSEWHERE: dict[str, tuple[str, ...]] = {
    "**Secrets** of a run on this machine": (
        "engines/local/containers/test_runs.py::test_nobody_but_the_ranks_sees_a_secret",
        "engines/local/containers/test_enter.py::test_a_secret_is_in_no_list_of_processes",
    ),
    "**Notebooks** make their token": (
        "workbench/test_notebook.py::test_opens_in_the_folder_with_a_token_and_ends_without_a_trace",
        "launcher/workbench/test_lab.py::test_no_flag_has_the_token",
    ),
    "Edits that come back": (
        "workbench/test_edits.py::test_paths_that_lead_out_or_into_git",
        "workbench/test_edits.py::test_a_link_of_the_users_is_not_written_through",
        "workbench/test_edits.py::test_an_older_state_is_replaced_and_ones_own_is_not",
    ),
    "**A repository** that is bundled": (
        "bundles/source/test_git.py::test_no_program_of_the_repository_is_run",
        "bundles/source/test_git.py::test_no_filter_of_the_repository_is_run",
        "bundles/source/test_git.py::test_no_program_of_a_submodule_is_run",
        "bundles/source/test_git.py::test_nothing_is_fetched_for_a_repository_that_lacks_objects",
    ),
    "**What is copied**": ("bundles/test_merging.py::test_cp_of_both_engines_and_artifacts_go_through_no_link",),
    "Archives and names of objects lead nowhere": (
        "bundles/test_extraction.py::test_nothing_ever_lands_outside",
        "storage/test_download_prefix.py::test_no_name_whatever_leads_out",
    ),
    "Host keys are checked": (
        "clusters/hosts/test_ssh.py::test_unknown_and_changed_host_keys",
        "clusters/hosts/test_ssh.py::test_root_by_sudo",
    ),
    "A node that claims the range": (
        "clusters/plan/test_host_plan.py::test_a_node_that_claims_the_range_of_another_gets_no_routes",
    ),
}

CLAIMS = {**RULE, **RIGHTS, **ATTACKERS, **FIELDS, **ELSEWHERE}
