"""Learn blackjack in a loop of one's own: the loop steps the env, the agent acts and learns.

    python examples/own_loop.py
    python examples/own_loop.py --model your/model --steps 20000

Plays blackjack at 16 tables side by side. Prints now and then what the agent wins per round, and at the end what it
wins with the most likely action. Writes the checkpoint to a new folder in runs/own_loop. Ctrl-C ends the training
early. With --resume runs/own_loop/1 and otherwise the same arguments, a run that was stopped goes on.
"""

import gymnasium as gym
import numpy as np

import lmpolicy
from lmpolicy import Agent, Checkpoints

ENV_ID = "Blackjack-v1"
SETTINGS = lmpolicy.hyperparameters(ENV_ID)
"""Settings that were found by experiment. ``print(SETTINGS)`` shows them."""
TABLES = 16
"""Number of episodes side by side. With 1, the loop is simpler, and the model reads one prompt at a time."""


def main(argv=None):
    args = parse_arguments(argv)
    run = args.resume or lmpolicy.new_run(args.output)
    settings = SETTINGS if args.model is None else SETTINGS.for_model(args.model)
    common = {"callback": Checkpoints(run), "total_timesteps": args.steps, "device": args.device}
    try:
        if args.resume:
            agent = Agent.resume(run, model=settings, **common)
        else:
            agent = Agent(settings, seed=args.seed, **common)
    except (OSError, ValueError) as error:  # no such language model or run, or a run that is complete
        raise SystemExit(str(error)) from None

    def evaluate():
        mean, deviation = agent.evaluate(gym.make(ENV_ID), args.episodes, seed=args.seed + 1000)
        return mean, deviation / args.episodes**0.5

    scores = {"random": play_at_random(args.episodes, args.seed + 1000)}
    if not args.resume:
        scores["before training"] = evaluate()
    tables, ending = {number: gym.make(ENV_ID) for number in range(TABLES)}, ""
    try:
        play(agent, tables, args.seed + agent.num_timesteps)
    except KeyboardInterrupt:
        ending = " (stopped early by Ctrl-C)"
    agent.close()
    checkpoint = agent.save(run / "model")

    scores["after training"] = evaluate()
    print(f"\n{ENV_ID}: mean return of {args.episodes} episodes (the best possible is about -0.05: the house wins)")
    for name, (mean, error) in scores.items():
        print(f"  {name:<16}{mean:7.2f} +- {error:.2f}")
    print(f"learnt in {agent.num_timesteps:,} env steps{ending}")
    print(f"checkpoint  {checkpoint}")


def play_at_random(episodes, seed):
    """Return the mean return of random play, and its standard error."""
    env, returns = gym.make(ENV_ID), []
    env.reset(seed=seed)
    env.action_space.seed(seed)
    for _ in range(episodes):
        env.reset()
        done = False
        while not done:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            done = terminated or truncated
        returns.append(reward)
    return np.mean(returns), np.std(returns) / episodes**0.5


def play(agent, tables, seed):
    """Play until the training ends."""
    observations = {number: env.reset(seed=seed + number)[0] for number, env in tables.items()}
    returns, updates = [], 0
    while agent.is_learning:
        actions = agent.act_together(observations)
        for number, env in tables.items():
            observation, reward, terminated, truncated, _ = env.step(actions[number])
            agent.assign_reward(reward, number)
            if terminated or truncated:
                statistics = agent.terminate_episode(truncated, number, observation=observation)
                returns.append(statistics["return"])
                if statistics["updates"] > updates:
                    updates = statistics["updates"]
                    print(f"{statistics['env_steps']:>8,} env steps, mean return {np.mean(returns):6.2f}", flush=True)
                    returns = []
                observation, _ = env.reset()
            observations[number] = observation


def parse_arguments(argv):
    options = lmpolicy.ScriptOptions(
        __doc__, output="runs/own_loop", steps=SETTINGS.total_timesteps, episodes=1000, needs=()
    )
    return options.read(argv)


if __name__ == "__main__":
    main()
