"""Which tests must notice a generated mutant, from the place of the file that it breaks."""

import pathlib

# What follows the file of tests with the module's name, by file, or by folder for all files in it. Whatever
# has neither is judged by the folder of tests with its package's name.
MORE: dict[str, tuple[str, ...]] = {
    "adders": (
        "tests/adders/test_contract.py",
        "tests/adders/test_adder_calls.py",
        "tests/adders/test_priorities.py",
    ),
    "adders/continuing.py": ("tests/adders/test_frame_stacks.py", "tests/adders/test_episode.py"),
    "adders/n_step.py": ("tests/adders/test_frame_stacks.py",),
    "adders/sequence.py": (
        "tests/adders/test_continuing.py",
        "tests/adders/test_episode.py",
        "tests/adders/test_states.py",
    ),
    "agents": ("tests/agents/test_registry.py",),
    "agents/acting.py": (
        "tests/agents/mpo/test_acting.py",
        "tests/agents/on_policy/test_acting.py",
        "tests/agents/on_policy/test_reference_acting.py",
        "tests/agents/on_policy/test_memory.py",
        "tests/agents/mpo/test_modern.py",
        "tests/agents/properties/test_acting.py",
        "tests/runs/test_policies.py",
        "tests/runs/test_programs.py",
        "tests/agents/test_acting_on_tensors.py",
    ),
    "agents/actions.py": (
        "tests/agents/on_policy/test_choices.py",
        "tests/agents/on_policy/test_reference_acting.py",
        "tests/agents/on_policy/test_acting.py",
        "tests/agents/mpo/test_acting.py",
        "tests/agents/ppo/test_reference_step.py",
        "tests/runs/test_policies.py",
        "tests/agents/test_acting_on_tensors.py",
    ),
    "agents/placing.py": (
        "tests/agents/on_policy/test_builder.py",
        "tests/agents/off_policy/test_builder.py",
        "tests/experiments/test_batched.py",
    ),
    "agents/choosing.py": (
        "tests/agents/off_policy/test_acting.py",
        "tests/agents/test_acting_on_tensors.py",
    ),
    "agents/requirements.py": ("tests/experiments/test_batched.py",),
    "agents/on_policy/builder.py": ("tests/experiments/test_batched.py",),
    "agents/off_policy/builder.py": ("tests/experiments/test_batched.py",),
    "agents/mpo": (
        "tests/agents/mpo/test_reference_step.py",
        "tests/agents/mpo/test_reference_discrete_step.py",
        "tests/agents/mpo/test_learner.py",
        "tests/agents/mpo/test_encoder.py",
        "tests/agents/mpo/test_modern.py",
        "tests/agents/mpo/test_discrete.py",
        "tests/agents/mpo/test_heads.py",
        "tests/agents/mpo/test_replay.py",
        "tests/agents/mpo/test_builder.py",
        "tests/agents/mpo/test_config.py",
        "tests/agents/mpo/test_objectives.py",
        "tests/agents/properties",
    ),
    "agents/mpo/critics.py": (
        "tests/agents/mpo/test_batch_norm.py",
        "tests/agents/mpo/test_scaled_returns.py",
    ),
    "agents/mpo/builder.py": ("tests/agents/mpo/test_memory.py", "tests/agents/mpo/test_scaled_returns.py"),
    "agents/mpo/parts.py": (
        "tests/agents/mpo/test_batch_norm.py",
        "tests/agents/mpo/test_scaled_returns.py",
        "tests/agents/mpo/test_reference_memory_step.py",
        "tests/agents/mpo/test_memory.py",
    ),
    "agents/mpo/losses.py": (
        "tests/agents/mpo/test_batch_norm.py",
        "tests/agents/mpo/test_scaled_returns.py",
        "tests/agents/mpo/test_reference_memory_step.py",
        "tests/agents/mpo/test_memory.py",
    ),
    "agents/mpo/networks.py": (
        "tests/agents/mpo/test_batch_norm.py",
        "tests/agents/mpo/test_memory.py",
    ),
    "agents/mpo/optimizers.py": ("tests/agents/mpo/test_batch_norm.py",),
    "agents/off_policy": ("tests/agents/off_policy", "tests/agents/properties"),
    "agents/on_policy": (
        "tests/agents/ppo/test_reference_step.py",
        "tests/agents/vmpo/test_reference_step.py",
        "tests/agents/impala",
        "tests/agents/on_policy",
        "tests/agents/properties",
    ),
    "agents/ppo": (
        "tests/agents/ppo",
        "tests/agents/on_policy/test_memory.py",
        "tests/agents/on_policy/test_learners.py",
        "tests/agents/properties/test_learners.py",
        "tests/agents/properties/test_device_steps.py",
    ),
    "agents/vmpo": (
        "tests/agents/vmpo",
        "tests/agents/on_policy/test_memory.py",
        "tests/agents/on_policy/test_learners.py",
        "tests/agents/properties/test_learners.py",
        "tests/agents/properties/test_device_steps.py",
    ),
    "minerva_acme/__init__.py": ("tests/test_public_names.py", "tests/machine/test_threads.py"),
    "minerva_acme/names/lazy.py": ("tests/test_public_names.py",),
    "minerva_acme/acceleration": ("tests/acceleration", "tests/agents/test_acceleration.py"),
    "minerva_acme/acceleration/acting.py": (
        "tests/agents/test_acting_on_arrays.py",
        "tests/acceleration/test_edits.py",
    ),
    "minerva_acme/acceleration/adam.py": ("tests/agents/properties/test_learners.py",),
    "minerva_acme/acceleration/array_ppo.py": (
        "tests/acceleration/test_edits.py",
        "tests/agents/ppo/test_reference_step.py",
    ),
    "minerva_acme/acceleration/array_layers.py": (
        "tests/acceleration/test_array_actor_critic.py",
        "tests/acceleration/test_edits.py",
    ),
    "minerva_acme/acceleration/array_actor_critic.py": ("tests/acceleration/test_edits.py",),
    "minerva_acme/acceleration/agreement.py": ("tests/acceleration/test_edits.py",),
    "minerva_acme/acceleration/target_critic.py": ("tests/acceleration/test_target_critic.py",),
    "minerva_acme/actors": ("tests/actors",),
    "minerva_acme/builders.py": ("tests/test_own_builders.py", "tests/experiments/test_batched.py"),
    "minerva_acme/cli": (
        "tests/cli/test_cli.py",
        "tests/cli/test_errors.py",
        "tests/cli/test_first_minute.py",
    ),
    "minerva_acme/cli/main.py": ("tests/cli/test_errors.py",),
    "minerva_acme/core.py": (
        "tests/testing/test_conformance.py",
        "tests/experiments/test_saver.py",
        "tests/environments/test_loop.py",
    ),
    "minerva_acme/constraints.py": ("tests/agents/mpo/test_config.py", "tests/agents/ppo/test_config.py"),
    "minerva_acme/datasets": ("tests/datasets", "tests/experiments/test_data.py"),
    "minerva_acme/distributed": (
        "tests/distributed/test_graph.py",
        "tests/distributed/test_inline_runs.py",
        "tests/distributed/test_inline_ends.py",
    ),
    "minerva_acme/distributions": (
        "tests/distributions",
        "tests/agents/mpo/test_discrete.py",
        "tests/agents/mpo/test_targets.py",
    ),
    "minerva_acme/environments/batched_loop.py": ("tests/experiments/test_batched.py",),
    "minerva_acme/environments/batched_pendulum.py": ("tests/environments/test_batched.py",),
    "minerva_acme/environments": ("tests/environments/test_misbehaving.py", "tests/environments"),
    "minerva_acme/experiments": (
        "tests/experiments/test_run.py",
        "tests/experiments/test_run_hooks.py",
        "tests/experiments/test_exact_resume.py",
        "tests/experiments/test_data.py",
    ),
    "minerva_acme/experiments/interrupts.py": ("tests/experiments/test_signals.py",),
    "minerva_acme/experiments/starting.py": ("tests/experiments/test_recorded_runs.py",),
    "minerva_acme/experiments/evaluator.py": (
        "tests/experiments/test_batched.py",
        "tests/experiments/test_own_metrics.py",
    ),
    "minerva_acme/experiments/parts.py": (
        "tests/experiments/test_batched.py",
        "tests/experiments/test_evaluator.py",
        "tests/agents/test_offline_runs.py",
    ),
    "minerva_acme/runs/recorded_environment.py": ("tests/experiments/test_recorded_runs.py",),
    "minerva_acme/runs/evaluation.py": (
        "tests/experiments/test_batched.py",
        "tests/experiments/test_own_metrics.py",
    ),
    "minerva_acme/runs/policies.py": ("tests/runs/test_evaluation.py",),
    "minerva_acme/runs/run_curves.py": ("tests/plotting/test_curves.py",),
    "minerva_acme/learners": (
        "tests/learners",
        "tests/agents/properties/test_learners.py",
        "tests/agents/properties/test_device_steps.py",
        "tests/agents/mpo/test_reference_step.py",
        "tests/agents/on_policy/test_learners.py",
    ),
    "minerva_acme/losses": ("tests/losses/test_golden_losses.py", "tests/losses/test_shapes.py"),
    "minerva_acme/networks/critic_observations.py": ("tests/agents/test_critic_observations.py",),
    "minerva_acme/networks/normalizer.py": ("tests/agents/test_critic_observations.py",),
    "minerva_acme/networks": ("tests/networks", "tests/agents/dqn/test_reference_step.py"),
    "minerva_acme/replay": (
        "tests/replay/test_backends.py",
        "tests/replay/test_conformance.py",
        "tests/adders/test_adder_calls.py",
        "tests/adders/test_priorities.py",
    ),
    "minerva_acme/replay/layouts/batched.py": ("tests/adders/test_batched.py",),
    "minerva_acme/replay/memory/ring.py": ("tests/adders/test_batched.py",),
    "minerva_acme/replay/layouts": (
        "tests/adders/test_frame_stacks.py",
        "tests/adders/test_sequence.py",
        "tests/adders/test_n_step.py",
    ),
    "minerva_acme/replay/memory": (
        "tests/replay/memory/test_store.py",
        "tests/replay/memory",
        "tests/replay/test_conformance.py",
        "tests/replay/test_backends.py",
        "tests/datasets/test_demonstrations.py",
    ),
    "minerva_acme/replay/reverb": ("tests/replay/reverb/test_store.py", "tests/replay/test_conformance.py"),
    "minerva_acme/replay/layouts/rollouts.py": ("tests/adders/test_rollout.py",),
    "minerva_acme/specs.py": (
        "tests/test_specs.py",
        "tests/wrappers/test_spec_check.py",
        "tests/environments/test_misbehaving.py",
        "tests/environments/test_gymnasium_spaces.py",
        "tests/replay/test_packing.py",
    ),
    "minerva_acme/wrappers/critic_observation.py": ("tests/agents/test_critic_observations.py",),
    "minerva_acme/wrappers": (
        "tests/wrappers/test_every_wrapper.py",
        "tests/environments/test_misbehaving.py",
    ),
    "minerva_acme/environments/task_settings.py": (
        "tests/environments/test_task_settings.py",
        "tests/environments/test_factories.py",
    ),
}


def tests_of(file: str, root: pathlib.Path) -> tuple[str, ...]:
    """The tests for a file of the library, the most likely to notice first; both from the tree's root.

    Returns:
        The tests; none where only those of `make test-ray` could notice.
    """
    path = pathlib.PurePosixPath(file)
    if path.name.startswith("ray_"):  # only tests with processes of Ray notice, which take minutes each
        return ()
    folder = pathlib.PurePosixPath("tests") / path.parent.as_posix().removeprefix("minerva_acme").lstrip("/")
    if path.parts[0] == "agents":
        folder = pathlib.PurePosixPath("tests") / path.parent
    own = (folder / f"test_{path.name}").as_posix()
    named = [own] if (root / own).is_file() else []
    more = MORE.get(file, ())
    if path.parts[0] == "agents" and len(path.parts) > 2 and path.parent.as_posix() not in MORE:
        more = (*more, folder.as_posix(), "tests/agents/properties", "tests/agents/test_hooks.py")
    for parent in path.parents:
        if parent.as_posix() in MORE:
            more = (*more, *MORE[parent.as_posix()])
            break
    found = list(dict.fromkeys(test for test in (*named, *more) if (root / test).exists()))
    if not found and folder.parts != ("tests",) and (root / folder).is_dir():
        found = [folder.as_posix()]
    return tuple(found)
