#include "dew/runtime/comm/launcher.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace dew::comm {
namespace {

std::optional<Launcher> find(const std::map<std::string, std::string>& environment) {
  return find_launcher([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launcher, NoneWithoutItsVariables) {
  EXPECT_FALSE(find({}));
  EXPECT_FALSE(find({{"PATH", "/bin"}, {"OMPI_MCA_btl", "self"}}));
}

TEST(Launcher, Mpirun) {
  const auto launcher = find({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "1"}});
  ASSERT_TRUE(launcher);
  EXPECT_EQ(launcher->name, "mpirun");
  EXPECT_EQ(launcher->processes, 4);
}

TEST(Launcher, SlurmOnlyInAStepOfSeveralTasks) {
  EXPECT_FALSE(find({{"SLURM_JOB_ID", "17"}, {"SLURM_NTASKS", "8"}}));
  EXPECT_FALSE(find({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}));
  const auto launcher = find({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "8"}});
  ASSERT_TRUE(launcher);
  EXPECT_EQ(launcher->name, "srun");
  EXPECT_EQ(launcher->processes, 8);
}

TEST(Launcher, OthersThatSpeakPmi) {
  EXPECT_EQ(find({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}})->processes, 2);
  const auto pmix = find({{"PMIX_RANK", "0"}});
  ASSERT_TRUE(pmix);
  EXPECT_FALSE(pmix->processes);
}

TEST(Launcher, NumbersThatAreNone) {
  EXPECT_FALSE(find({{"OMPI_COMM_WORLD_SIZE", "four"}})->processes);
  EXPECT_FALSE(find({{"OMPI_COMM_WORLD_SIZE", "-1"}})->processes);
  EXPECT_FALSE(find({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2 x"}}));
}

}  // namespace
}  // namespace dew::comm
