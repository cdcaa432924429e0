import matplotlib.pyplot as plt

plt.plot([1, 10, 100], [1, 2, float("nan")])
plt.xscale("log")
plt.xticks([1, 10, 100], ["1", "10", "100"])
plt.minorticks_off()
plt.yticks([1, 2])
plt.show()
